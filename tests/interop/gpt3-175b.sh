#!/bin/bash
# Trains a GPT of 175 billion parameters on 1024 devices.

export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
NUM_NODES=128
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))

CHECKPOINTS=$1   # where to save
VOCAB=$2
MERGES=$3
DATA=$4

LAUNCH_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --node_rank $NODE_RANK
    --master_addr $MASTER_ADDR
    --master_port 6000
)

MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # flash, where there is one
)

STEP_ARGS=(
    --micro-batch-size 1
    --global-batch-size 1536
    --rerun-mode disabled
    --train-iters 500000
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.95
    --init-method-std 0.006
    --clip-grad 1.0
    --fp16
    --lr 6.0e-5
    --lr-decay-style cosine
    --min-lr 6.0e-6
    --lr-warmup-fraction .001
    --lr-decay-iters 430000
)

PARALLEL_ARGS=(
    --tensor-model-parallel-size 8
    --pipeline-model-parallel-size 16
    --use-distributed-optimizer
    --overlap-grad-reduce
)

DATA_ARGS=(
    --data-path $DATA
    --vocab-file $VOCAB
    --merge-file $MERGES
    --tokenizer-type GPT2BPETokenizer
    --split 949,50,1
)

LOG_ARGS=(
    --log-interval 100
    --save $CHECKPOINTS
    --load $CHECKPOINTS
)

torchrun ${LAUNCH_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    ${STEP_ARGS[@]} \
    ${PARALLEL_ARGS[@]} \
    "${DATA_ARGS[@]}" \
    ${LOG_ARGS[@]} 2>&1 | tee train.log
