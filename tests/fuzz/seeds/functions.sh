f() { local n=$1; A+=(--num-layers $n); }
function g { run ${A[@]+"${A[@]}"} "${A[@]:0:2}" "$@"; }
declare -A L=([a]=4 ["b"]=8)
f ${L[b]}
X=$A
C="torchrun --nproc_per_node 8 pretrain_gpt.py ${A[@]} --hidden-size 64 $'x y'"
let "N = 2 * 3"
g $N
$C --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 8 --vocab-size 99
