// Presets that teach. `look` is what to see, `play` what to change.

const kLessons = [
  {key: "bubble", title: "Your first bubble", mode: "schedule", sides: [{name: "gpipe", pp: 4, microbatches: 4}],
   look: "Four ranks hold a quarter of the model each. The last rank cannot start before the first three have passed the first microbatch on, and the first rank has nothing to do until gradients come back: the grey triangles are the bubble, (p − 1) / (m + p − 1) of all device time when transfers take no time.",
   play: "Drag the microbatches up: the same triangles, spread over more work. Drag the ranks up: they grow."},
  {key: "memory", title: "Why 1F1B needs less memory", mode: "schedule", sides: [{name: "gpipe", pp: 4, microbatches: 8}, {name: "1f1b", pp: 4, microbatches: 8}],
   look: "Both take equally long, and their bubbles are of equal size. But GPipe keeps the activations of all microbatches until the first backward pass, and 1F1B starts backward as soon as it can: rank 0 holds at most p of them. The strip under each rank is what it holds.",
   play: "Drag the microbatches up: GPipe's strip grows with them, that of 1F1B does not."},
  {key: "interleaving", title: "Interleaving", mode: "schedule", sides: [{name: "1f1b", pp: 4, microbatches: 8}, {name: "interleaved", pp: 4, microbatches: 8, vpp: 2}],
   look: "Each rank holds two thin slices of the model instead of a thick one (the second is drawn lighter), so that a microbatch comes round twice and the pipeline fills in half the time. The bubble shrinks by v.",
   play: "Drag the transfer time up: there are v times as many transfers, and at some point they cost more than the smaller bubble gains. Drag the chunks up."},
  {key: "zero", title: "Zero bubble", mode: "schedule", sides: [{name: "1f1b", pp: 4, microbatches: 12}, {name: "zb-h2", pp: 4, microbatches: 12}],
   look: "The backward pass has two halves. The rank before waits for the gradient of the input (I) only; the gradient of the weights (W) can be computed whenever there is nothing better to do. ZB-H2 fills what was bubble with it: from its first action to its last, the span, no rank waits. The ranks still start one after the other, which makes the makespan longer than the span; the next step follows rank by rank in the same way.",
   play: "Look at the strips: the price is memory. Choose zb-h1 on side B: 1F1B's memory, the same makespan, but a longer span. Drag W down: the less there is to move, the less it helps."},
  {key: "2bw", title: "What 2BW trades", mode: "schedule", sides: [{name: "1f1b", pp: 4, microbatches: 16}, {name: "pipedream-2bw", pp: 4, microbatches: 16}],
   look: "PipeDream-2BW never flushes: while one version of the weights is being trained, the next microbatches go in under it, so the drawn fill and drain are paid once for the whole training and not in every step. It costs a second copy of the weights, and gradients that are one update old.",
   play: "Compare 'bubble once full', 'copies of the weights' and 'staleness' above."},
  {key: "gpt3", title: "GPT-3 on 64 GPUs", mode: "job", sides: [{stack: "megatron-2022"}],
   look: "A whole step of GPT-3 175B on eight DGX A100: tensor parallelism inside a node, a pipeline of eight nodes, three chunks a rank. It was measured at 13.75 s (Korthikanti et al. 2022, arXiv 2205.05198).",
   play: "Drag the chunks to 1, choose recomputation full or none, or compare with another cluster."},
];
