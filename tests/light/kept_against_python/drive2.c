#include <stdlib.h>
#include <string.h>
#include "kept.h"
#define E __attribute__((visibility("default")))
#include <stdio.h>
/* keep: out text, items: kind alone ob oe rb re bb ae partner */
E int64_t drive_keep(const char*t,size_t n,int spaced,char*out,size_t*osize,uint32_t*origins,int64_t*items){
  kept_line k={0}; int r=keep_line(&k,(text){t,t+n},spaced);
  if(r!=KEEPS){kept_clear(&k);return -r;}
  memcpy(out,k.bytes,k.size);*osize=k.size;memcpy(origins,k.origins,(k.size+1)*4);
  for(size_t i=0;i<k.count;i++){kept*x=&k.items[i];int64_t*o=items+9*i;o[0]=x->kind;o[1]=x->stands_alone;o[2]=x->origin.begin-t;o[3]=x->origin.end-t;o[4]=x->read.begin;o[5]=x->read.end;o[6]=x->before.begin-t;o[7]=x->after.end-t;o[8]=x->partner==SIZE_MAX?-1:(int64_t)x->partner;}
  int64_t c=k.count;kept_clear(&k);return c;}
E int64_t drive_place(const char*t,size_t n,int64_t first,int64_t last,const size_t*st,size_t S,const char*tgt,size_t tn,const size_t*tt,size_t T,const int32_t*ids,const float*att,int spaced,const int32_t*alt,char*out){
  kept_line k={0}; if(keep_line(&k,(text){t,t+n},0)!=KEEPS){kept_clear(&k);return -9;}
  placing s={.kept=&k,.first=first,.last=last<0?k.count:(size_t)last,.source={k.bytes,k.bytes+k.size},.target={tgt,tgt+tn},.source_tokens=(const stretch*)st,.target_tokens=(const stretch*)tt,.source_count=S,.target_count=T,.ids=ids,.attention=att,.source_stride=S+1,.unknown=1};
  (void)spaced;
  pieces p={0}; written_text w={0}; int64_t r=-1; if(place_kept(&s,&p) && (!alt || replace_unknown(&s,&p,alt,0,0)) && write_parts(&k,&p,1,&w)) r=w.size;
  if(r>0) memcpy(out,w.bytes,r);
  free(w.bytes);pieces_clear(&p);kept_clear(&k);return r;}
E int64_t drive_broken(const char*t,size_t n,char*out){char*o=NULL;size_t room=0;int64_t r=without_placeholders((text){t,t+n},&o,&room); if(r>0)memcpy(out,o,r); free(o);return r;}
