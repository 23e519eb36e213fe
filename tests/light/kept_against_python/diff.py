import ctypes,random,sys,glob,time,os
from nmt.search.kept import find_placeholders
import nmt.search.kept as K
L=ctypes.CDLL(__import__('os').environ.get('DSO','work/d.so')); L.drive.restype=ctypes.c_size_t
L.drive.argtypes=[ctypes.c_char_p,ctypes.c_size_t,ctypes.POINTER(ctypes.c_int64),ctypes.c_size_t]
KIND={0:'word',1:'term',2:'opening',3:'closing'}
def c(line):
    raw=line.encode(); room=len(raw)+1; out=(ctypes.c_int64*(6*room))()
    n=L.drive(raw,len(raw),out,room); v=list(out[:6*n])
    ch=lambda b: len(raw[:b].decode())
    res=[]
    for i in range(n):
        b,e,k,a,tb,te=v[6*i:6*i+6]
        res.append((ch(b),ch(e),KIND[k],bool(a),(raw[tb:te].decode() if raw[b:b+1]==b'{' else raw[tb:te].decode().lower())))
    return res
def py(line):
    return [(f.span[0],f.span[1],f.kind.value,f.stands_alone,f.tag.lstrip('{')) for f in find_placeholders(line)]
ATOMS=['{','}','{{','}}','{{{','}}}','${','#{','%{','%','%s','%1$s','%-5d','%-0+0d','%.2f','%(na.me)s','%(','%%','100%sure','5%20','a%C3','%-','*','.','.*','hh','ll','q','d','<','>','</','/>','<b','<b>','</b>','<br>','<br/>','<a href="','"',"'",'=','x=y','x="1"',"x='2'",'<!--','-->','<![CDATA[',']]>','<?','?>','<%','%>','{%','%}','{%- if x %}','{% endif %}','{% end %}','{{#each a}}','{{/each}}','{# ','#}','<!DOCTYPE html>','<!ELEMENT','<unk>','</unk>','&nbsp;','&amp;','&quot;','&#160;','&#x201c;','&#39;','&#x2013;','&laquo;','&foo;','&','&#1;','&#128;','&#147;','&shy;','&#x','&#1234567;','http://','https://','HTTPS://','ſ','www.','WwW.','ftp://','a.b/c','例え.jp','한국.kr','(x)','(','(((',')','[',']','a@b.de','a.b+c@d-e.f.g','@','%a@b.c','user','@b.','http://x.y/(z).','“','”','’','…','»','«','é','ñ','٣','Ⅷ','中','文','。','、',' ',' ','\u00a0','\u3000','\t','\n','\r','\x1c','\x85','a','b1','Z','_','-',':',';','!','?',',','$','#','1','23','0','😀','\u0301','\ud7a3','x:y','ns:tag.x','<ns:t.a-b c>','<B>','</B>','<a<b','a<b c','>d','</İ>','K','if','end','{name}','{a b}','${a b}','{{a b}}','{%d}','{#}','{ }','{}','\ufeff','\u200b','\x00']
def gen(r):
    return ''.join(r.choice(ATOMS) for _ in range(r.randint(1,r.choice([3,8,20,60]))))
def lines():
    for f in glob.glob('../shared/data/**/*',recursive=True)+glob.glob('../shared/cases/**/*',recursive=True)+glob.glob('tests/search/*.py')+glob.glob('tests/fixtures/**/*',recursive=True):
        if os.path.isfile(f) and os.path.getsize(f)<5e7 and not f.endswith(('.bz2','.gz','.nmt','.npz','.npy','.pt','.safetensors','.model')):
            try: t=open(f,encoding='utf-8').read()
            except Exception: continue
            ls=[l for l in t.split('\n') if any(x in l for x in '<&{$#%@:.')]
            yield from random.Random(1).sample(ls,min(len(ls),1500))
if __name__=='__main__':
    bad=0;n=0
    r=random.Random(int(sys.argv[1])); count=int(sys.argv[2])
    def all_():
        for _ in range(count): yield gen(r)
        if count>5000:
            for l in lines(): yield l
    found=0
    for line in all_():
        n+=1
        a,b=py(line),c(line); found+=len(a)
        if a!=b:
            bad+=1
            if bad<=8: print(repr(line)); print('  py',[x for x in a if x not in b]); print('  c ',[x for x in b if x not in a])
    print('lines',n,'found',found,'bad',bad)
