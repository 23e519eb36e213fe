import sys; sys.path.insert(0,'work')
import ctypes as C, random, torch
import diff
from nmt.search.kept import keep, Kind
from nmt.search.source import source_units
from nmt.search.texts import Placer, pieces_of, written, without_placeholders, replace
from nmt.search.kept import count_placeholders, broken_placeholders
from collections import Counter
from nmt.data.tokenizer import word_around
L=C.CDLL('work/k.so')
L.drive_keep.restype=L.drive_place.restype=C.c_int64
L.drive_keep.argtypes=[C.c_char_p,C.c_size_t,C.c_int,C.c_char_p,C.POINTER(C.c_size_t),C.POINTER(C.c_uint32),C.POINTER(C.c_int64)]
KN=['word','term','opening','closing']
def ckeep(line,spaced):
    raw=line.encode(); n=len(raw)
    out=C.create_string_buffer(8*n+16); size=C.c_size_t(); org=(C.c_uint32*(8*n+16))(); it=(C.c_int64*(9*n+9))()
    r=L.drive_keep(raw,n,spaced,out,C.byref(size),org,it)
    if r<=0: return None
    text=out.raw[:size.value]; ch=lambda b:len(raw[:b].decode()); ct=lambda b:len(text[:b].decode())
    res=[]
    for i in range(r):
        k,a,ob,oe,rb,re_,bb,ae,pa=it[9*i:9*i+9]
        res.append((KN[k],bool(a),ch(ob),ch(oe),ct(rb),ct(re_),ch(bb),ch(ae),pa))
    orig=[]; b=0
    for c_ in text.decode(): orig.append(ch(org[b])); b+=len(c_.encode())
    orig.append(ch(org[b]))
    return text.decode(),res,orig
def pkeep(line,spaced):
    k=keep(line,placeholders=True,glossary=None,spaced=spaced)
    if k is None: return None,None
    return (k.text,[(i.kind.value,i.stands_alone,*i.origin,*i.span,i.origin[0]-len(i.spaces[0]),i.origin[1]+len(i.spaces[1]),-1 if i.partner is None else i.partner) for i in k.kept],k.origins),k
WORDS=['Haus','der','die','grün','.',',','l’eau','e-mail','中文','語','가나','!','x_1','“','”','42','ไทย','a\u0301b','?']
def cut(r,text,single):
    spans=[];p=0
    while p<len(text):
        e=p+1
        while e<len(text) and text[e] not in single and text[p] not in single and r.random()<0.6: e+=1
        spans.append((p,e)); p=e
    return spans
def by(text,spans):
    b=[0]
    for c_ in text: b.append(b[-1]+len(c_.encode()))
    return [(b[x],b[y]) for x,y in spans]
def main(seed,count):
    r=random.Random(seed); bad=nk=pl=broke=0
    real=list(diff.lines()) if count>4000 else []
    for n in range(count+len(real)):
        if n>=count: line=real[n-count]
        else:
            line=diff.gen(r) if n%2 else ' '.join(r.choice([r.choice(WORDS),r.choice(diff.ATOMS),r.choice(['<b>','</b>','<i>','</i>','{x}','%s','<br/>'])]) for _ in range(r.randint(1,14))).replace(' </','</' if r.random()<.5 else ' </')
        for spaced in (False,True):
            a,k=pkeep(line,spaced); b=ckeep(line,spaced)
            nk+=1
            if a!=b:
                bad+=1
                if bad<6: print('keep',repr(line),spaced); print(a);print(b)
            if spaced or k is None or a!=b or not k.text.strip(): continue
            st=cut(r,k.text,k.stand_in)
            lo,hi=0,len(k.kept)
            words=[r.choice(WORDS+['{x}','%s','www.a.b','a@b.c','&amp;','<b>','<','%','{','}'] if r.random()<.3 else WORDS) for _ in range(r.randint(0,10))]; tgt=' '.join(words)
            if r.random()<.3: tgt=tgt.replace(' ','',2)
            tt=cut(r,tgt,'') ; ids=[1 if r.random()<.08 else 5 for _ in tt]
            if r.random()<.3: tt.append((len(tgt),len(tgt))); ids.append(2 if r.random()<.5 else 7)
            S,T=len(st),len(tt)
            g=torch.Generator().manual_seed(r.randint(0,1<<30))
            att=torch.rand(T,S+1,generator=g)
            if r.random()<.5: att=(att*4).round()/4
            if r.random()<.5: att=att**6
            att=att/att.sum(1,keepdim=True).clamp_min(1e-6)
            kept=list(enumerate(k.kept))
            if r.random()<.3 and hi>1:
                lo=r.randint(0,hi-1); hi=r.randint(lo,hi); kept=kept[lo:hi]
                # tokens only from there
                b0=k.kept[lo].span[0]; st=[s for s in st if s[0]>=b0] or st[-1:]; e0=max([i.span[1] for _,i in kept],default=0); 
                st2=[s for s in st if s[0]<max(e0+5,st[0][1])]; st=st2; S=len(st); att=att[:,:S+1].contiguous()
            units=source_units(k.text,st,kept)
            ps=Placer(pieces_of(tgt,ids,tt,att,units),units,kept).placed()
            sid=[1 if r.random()<.2 else 4 for _ in st]
            ru=r.random()<.6
            if ru:
                for i_,pc in enumerate(ps):
                    if pc.unknown is not None:
                        tk=int(att[pc.unknown,:len(st)].argmax()); sp=st[tk]
                        cp=k.text[slice(*sp)].strip() if sid[tk]==1 else word_around(k.text,sp)
                        cp=cp.replace(k.stand_in,'')
                        if cp: ps[i_]=replace(pc,text=cp,unknown=None)
            exp=sum((count_placeholders(i.text) for i in k.kept),Counter())
            want=written(ps).text
            for sp_ in (False,True):
                if count_placeholders(want)==exp: break
                broke+=1
                want=written(without_placeholders(ps),spaced=sp_).text
            tb=diff.gen(r); rb=tb.encode(); ob=C.create_string_buffer(3*len(rb)+16); L.drive_broken.restype=C.c_int64
            nb=L.drive_broken(rb,C.c_size_t(len(rb)),ob)
            if ob.raw[:nb].decode()!=broken_placeholders(tb):
                bad+=1; print('broken',repr(tb),repr(ob.raw[:nb].decode()),repr(broken_placeholders(tb)))
            raw=line.encode(); bs=[x for s in by(k.text,st) for x in s]; bt=[x for s in by(tgt,tt) for x in s]
            out=C.create_string_buffer(4*(len(raw)+len(tgt.encode()))+100*(hi+1)+4*len(tgt)*len(line)+400)
            tr=tgt.encode()
            L.drive_place.argtypes=None
            got=L.drive_place(raw,C.c_size_t(len(raw)),C.c_int64(lo),C.c_int64(hi),(C.c_size_t*len(bs))(*bs),C.c_size_t(S),tr,C.c_size_t(len(tr)),(C.c_size_t*max(1,len(bt)))(*bt),C.c_size_t(T),(C.c_int32*max(1,T))(*ids),att.numpy().ctypes.data_as(C.c_void_p),0,((C.c_int32*max(1,S))(*sid) if ru else None),out)
            pl+=1
            g_=out.raw[:got].decode() if got>=0 else got
            if g_!=want:
                bad+=1
                if bad<6: print('place',repr(line),repr(tgt),lo,hi); print(' py',repr(want)); print(' c ',repr(g_))
    print('kept',nk,'placed',pl,'broke',broke,'bad',bad)
main(int(sys.argv[1]),int(sys.argv[2]))
