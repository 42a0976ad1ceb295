#!/bin/bash
#SBATCH --nodes=8
set -euo pipefail
TP="${TP:-4}"
PP=4
VPP=5
CP=2
SEQ=8192
HIDDEN=8192
OPTIONS=" \
    --use-mcore-models \
    --transformer-impl transformer_engine \
    --tensor-model-parallel-size ${TP} \
    --pipeline-model-parallel-size ${PP} \
    --num-layers-per-virtual-pipeline-stage 4 \
    --context-parallel-size ${CP} \
    --sequence-parallel \
    --use-distributed-optimizer \
    --overlap-grad-reduce --overlap-param-gather \
    --num-layers 80 --hidden-size ${HIDDEN} --ffn-hidden-size 28672 \
    --num-attention-heads 64 --group-query-attention --num-query-groups 8 \
    --kv-channels 128 --seq-length $SEQ --max-position-embeddings 131072 \
    --position-embedding-type rope --rotary-base 500000 --use-rope-scaling \
    --normalization RMSNorm --swiglu --disable-bias-linear \
    --untie-embeddings-and-output-weights \
    --attention-dropout 0.0 --hidden-dropout 0.0 \
    --tokenizer-type NullTokenizer --vocab-size 128255 \
    --micro-batch-size 1 --global-batch-size 512 \
    --lr 1.5e-4 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --clip-grad 1.0 \
    --bf16 --cross-entropy-loss-fusion --mock-data --distributed-timeout-minutes=60"
srun --output=log.txt bash -c "torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py ${OPTIONS}"
