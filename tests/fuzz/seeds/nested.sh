A=1
case $A in 1|2) B=("--num-layers 4") ;; *) B=() ;; esac
if [[ $A == 1 && -n "$1" ]]; then
C=2
elif true; then C=3
else C=4; fi
[ $C = 2 ] && { D=1; }
cat <<E
if
E
srun bash -c "python pretrain_gpt.py ${B[@]} --hidden-size 64 --num-attention-heads 4 --seq-length 128 --vocab-size 99 --micro-batch-size 1 --global-batch-size 8 --tp ${D:-1} $(x)"
