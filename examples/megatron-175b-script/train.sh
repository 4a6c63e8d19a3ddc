#!/bin/bash
# GPT-3 175B on 128 GPUs. Edit before use: one node is a placeholder.
set -euo pipefail

GPUS_PER_NODE=8
NODES=${NNODES:-1}
WORLD_SIZE=$((GPUS_PER_NODE * NODES))
TENSOR=8
PIPELINE=16
DATA=$1       # prefix of the tokenized text
VOCABULARY=$2 # folder of GPT-2's vocabulary files

LAUNCHER=(
  --nproc_per_node "$GPUS_PER_NODE"
  --nnodes "$NODES"
)

MODEL=(
  --num-layers 96
  --hidden-size 12288
  --num-attention-heads 96
  --seq-length 2048
  --max-position-embeddings 2048
)

TRAINING=(
  --micro-batch-size 1
  --global-batch-size 1536
  --train-samples 146484375 # 300 billion tokens
  --bf16
  --lr 6.0e-5
  --lr-decay-style cosine
  --clip-grad 1.0
  --use-distributed-optimizer
)

torchrun "${LAUNCHER[@]}" pretrain_gpt.py \
  "${MODEL[@]}" \
  "${TRAINING[@]}" \
  --tensor-model-parallel-size $TENSOR \
  --pipeline-model-parallel-size $PIPELINE \
  --sequence-parallel \
  --recompute-granularity selective \
  --tokenizer-type GPT2BPETokenizer \
  --vocab-file "$VOCABULARY/vocab.json" \
  --merge-file "$VOCABULARY/merges.txt" \
  --data-path "$DATA" \
  --log-interval 100
