import sys; sys.path.insert(0,'work')
import time,diff
N=1_000_000
for a in ['<','%','{','{{','${','&','&#','%(','<a ','<a b="','<a b=\'<','<!--','<![CDATA[','{%','{# ','{#','a@','@','http://','www.','http://a(','(http://','a<b c>','a<b c>d</b>','<a b=c','</a','{"','"','&a','aaaaaa@aa.','http://a{','http://中a','http://x中.','<a/','<?','<a b={','<a-b.','%-0','%1','%+','<!A "','<!A a ','a<b {x}{']:
    t=(a*(N//len(a)+1))[:N].encode(); s=time.time(); 
    out=(diff.ctypes.c_int64*6)(); k=diff.L.drive(t,len(t),out,1); e=time.time()-s
    if e>0.25: print(repr(a),k,round(e,2))
    m=(a*2000).replace('\n',''); 
    if diff.py(m)!=diff.c(m): print('differs',a)
