#include "placeholders.h"
__attribute__((visibility("default"))) size_t drive(const char*t,size_t n,int64_t*out,size_t room){
  scanner s={.whole={t,t+n}}; placeholder p; size_t k=0;
  while(scan_next(&s,&p)){ if(k<room){int64_t*o=out+6*k; o[0]=p.at.begin-t;o[1]=p.at.end-t;o[2]=p.kind;o[3]=p.stands_alone;o[4]=p.tag.begin-t;o[5]=p.tag.end-t; if(p.tag.begin==p.tag.end)o[4]=o[5]=0;} k++;}
  scan_end(&s); return k;}
