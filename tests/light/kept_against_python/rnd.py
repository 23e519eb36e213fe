import torch,sentencepiece,sys
from pathlib import Path
from tests.interop.engine_models import section,content_of
from tests.light.subword_models import trained
from nmt.models.base import *
import nmt.models
from tests.interop import engine_models as em
def make(name,**o):
    p=trained(**o); n=sentencepiece.SentencePieceProcessor(model_proto=p).get_piece_size()
    torch.manual_seed(int(sys.argv[1]) if len(sys.argv)>1 else 1)
    m=em.build_model(section(),n,n)
    with torch.no_grad():
        for k,w in m.named_parameters():
            w.add_(torch.randn_like(w)*(0.5 if 'embeddings' in k else 0.3))
            if w.dim()==1 and w.size(0)==n: w[1]+=float(sys.argv[2]) if len(sys.argv)>2 else 2.0
    Path(name).write_bytes(content_of(m.eval(),subwords=(p,p)))
make('work/bpe.nmt',model_type='bpe'); make('work/uni.nmt',model_type='unigram'); make('work/nfkc.nmt',model_type='unigram',normalization_rule_name='nmt_nfkc_cf')
