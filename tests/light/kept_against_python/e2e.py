import sys,random,time; sys.path.insert(0,'work')
import diff, nmt
from nmt.library.kept_by_engine import Keeper
from nmt.search.values import as_request
from nmt.light.translator import Translator
path=sys.argv[1]; n=int(sys.argv[2]); extra=eval(sys.argv[3]) if len(sys.argv)>3 else {}
m=nmt.load(path)
own=m._translator
own_names={k:v for k,v in extra.items() if k not in('placeholders','replace_unknown')}
opts={'placeholders':True,**extra}
if opts.get('placeholders') is False: opts.pop('placeholders')
k=Keeper(own,opts)
r=random.Random(4)
real=[l for l in diff.lines() if 0<len(l)<400]
r.shuffle(real)
lines=[]
W='The red house stands near a river . You can find more information here and there , press button to go on ! Please . It was late. We left early.'.split()
for i in range(n):
    c=i%3
    if c==0 and real: lines.append(real.pop())
    elif c==1: lines.append(' '.join(r.choice([r.choice(W)]*4+['{name}','%s','<b>','</b>','<i>','</i>','<br/>','https://a.b/c','a@b.de','&nbsp;','&quot;','{{ x }}','<a href="x">','</a>','Zqxjkvåß','Grüße']) for _ in range(r.randint(2,25))))
    else: lines.append(diff.gen(r)[:120])
lines=[l.replace('\r',' ').replace('\n',' ') for l in lines]
t=time.time(); want=k.translations([*map(as_request,lines)],own_names,details=()); t1=time.time()-t
t=time.time(); got=[x for x,_ in own.translated_parts(lines,**opts)]; t2=time.time()-t
bad=0
for l,a,b in zip(lines,want,got):
    ta=[x.text for x in a.hypotheses]; tb=[getattr(x,"text",x) for x in getattr(b,"n_best",None) or [b.text]]
    if len(ta)==len(tb): ta,tb=[ta],[tb]
    if ta[0]!=tb[0]:
        bad+=1
        if bad<6: print(repr(l)); print('  py',repr(ta[0])); print('  c ',repr(tb[0]))
print(len(lines),'bad',bad,'py',round(t1,1),'c',round(t2,1), own_names)
