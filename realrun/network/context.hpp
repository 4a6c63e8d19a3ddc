#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/network/layer.hpp"
#include "realrun/network/layers.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// Attention of context-parallel ranks over the keys and values of all ranks, for the queries of their own rows. Keys
/// and values travel either around a ring, c - 1 times a block from the previous neighbour (Liu et al. 2310.01889), or
/// in one all-gather (Grattafiori et al. 2407.21783 §3.3.2). The backward pass fetches them again; their gradients
/// travel around a ring with the blocks and end at their owners, or are reduce-scattered. Attention starts once all
/// blocks have arrived rather than block by block: traffic is that of a ring, memory is higher. Parts of the sequence
/// are treated as slices: the queries of a part attend to the parts before it.
template <class T>
class ContextAttention : public Layer<T> {
 public:
  enum class Form { kRing, kAllGather };

  /// `extent.length` is the length of whole sequences.
  ContextAttention(const AttentionExtent& extent, const TensorGroup& ranks, Form form)
      : extent_(extent), ranks_(ranks), form_(form) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    const std::vector<Tensor<T>> blocks = collect(keys_and_values(input, pass), pass);
    Tensor<T> output = pass.kernels->tensor(input.rows(), extent_.heads.heads * extent_.heads.head_dim);
    saved.parts.assign(pieces(pass), {});
    for (std::size_t piece = 0; piece < pieces(pass); ++piece) {
      const std::vector<Tensor<T>> slices = slices_for(piece, input, blocks, pass);
      Tensor<T> part = pass.kernels->tensor(rows_of_piece(input.rows(), pass), output.columns());
      saved.parts[piece].tensors = pass.kernels->attention(shape_of(pass), slices, part);
      copy_piece(part, piece, output, 0, pass, false);
    }
    saved.tensors = {input};
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T> input = saved.tensors[0];
    const std::vector<Tensor<T>> blocks = collect(keys_and_values(input, pass), pass);
    Kernels<T>& kernels = *pass.kernels;
    Tensor<T> gradient(input.rows(), input.columns());
    std::vector<Tensor<T>> of_blocks;  // gradients of the keys and values of all ranks, indexed as `blocks`
    for (const Tensor<T>& block : blocks) of_blocks.emplace_back(block.rows(), block.columns());
    for (std::size_t piece = 0; piece < pieces(pass); ++piece) {
      const std::vector<Tensor<T>> slices = slices_for(piece, input, blocks, pass);
      Tensor<T> given(rows_of_piece(input.rows(), pass), output_gradient.columns());
      copy_piece(output_gradient, piece, given, 0, pass, true);
      std::vector<Tensor<T>> found(slices.size());
      kernels.attention_gradient(shape_of(pass), slices, saved.parts[piece].tensors, given, found);
      add_queries(found.back(), piece, gradient, pass);
      for (std::size_t part = 0; part < found.size(); ++part) add_keys(found[part], part, of_blocks, pass);
    }
    spread_keys(send_home(of_blocks), gradient, pass);
    saved = {};
    return gradient;
  }

 private:
  std::size_t members() const { return static_cast<std::size_t>(ranks_.size()); }
  std::size_t own() const { return static_cast<std::size_t>(ranks_.index()); }

  // Number of equal parts of the sequence that a rank holds.
  static std::size_t pieces(const Pass<T>& pass) { return pass.context.zigzag ? 2 : 1; }
  std::size_t parts(const Pass<T>& pass) const { return members() * pieces(pass); }
  std::size_t length(const Pass<T>& pass) const { return extent_.length / parts(pass); }
  std::size_t rows_of_piece(std::size_t rows, const Pass<T>& pass) const { return rows / pieces(pass); }
  // Index within the sequence of a rank's piece.
  std::size_t part_of_piece(std::size_t member, std::size_t piece, const Pass<T>& pass) const {
    return piece == 0 ? member : parts(pass) - 1 - member;
  }
  AttentionExtent shape_of(const Pass<T>& pass) const {
    AttentionExtent shape = extent_;
    shape.length = length(pass);
    return shape;
  }

  std::size_t kv_width() const { return 2 * extent_.heads.head_dim; }
  // The keys and values of every group of heads, in adjacent columns.
  Tensor<T> keys_and_values(const Tensor<T>& input, const Pass<T>& pass) const {
    Tensor<T> packed = pass.kernels->tensor(input.rows(), extent_.heads.kv_heads * kv_width());
    for (std::size_t group = 0; group < extent_.heads.kv_heads; ++group) {
      const std::size_t from = group * extent_.heads.group_width() + extent_.heads.group() * extent_.heads.head_dim;
      copy_columns(input, from, packed, group * kv_width(), kv_width(), pass);
    }
    return packed;
  }
  static void copy_columns(const Tensor<T>& from, std::size_t from_column, Tensor<T>& to, std::size_t to_column,
                           std::size_t columns, const Pass<T>& pass) {
    pass.kernels->copy({from.data() + from_column, from.rows(), columns, from.columns()},
                       {to.data() + to_column, from.rows(), columns, to.columns()});
  }

  // Keys and values by member.
  std::vector<Tensor<T>> collect(const Tensor<T>& block, const Pass<T>& /*pass*/) const {
    std::vector<Tensor<T>> blocks(members());
    if (form_ == Form::kAllGather) {
      const Tensor<T> all = ranks_.gather_rows(block);
      const std::size_t bytes = block.buffer().bytes();
      for (std::size_t member = 0; member < members(); ++member) {
        blocks[member] = Tensor<T>(all.buffer().slice(member * bytes, bytes), block.rows(), block.columns());
      }
      return blocks;
    }
    Tensor<T> at_hand = block;
    blocks[own()] = block;
    for (std::size_t step = 1; step < members(); ++step) {
      at_hand = ranks_.pass_on(at_hand);
      blocks[(own() + members() - step) % members()] = at_hand;
    }
    return blocks;
  }

  // The gradient of each block starts at the rank that used it first: it follows the block, and every rank adds its
  // own.
  Tensor<T> send_home(const std::vector<Tensor<T>>& of_blocks) const {
    if (form_ == Form::kAllGather) {
      const Tensor<T>& any = of_blocks.front();
      Tensor<T> all(any.rows() * members(), any.columns());
      for (std::size_t member = 0; member < members(); ++member) {
        std::copy_n(of_blocks[member].data(), any.size(), all.row(member * any.rows()));
      }
      return ranks_.scatter_rows(all);
    }
    Tensor<T> at_hand = of_blocks[(own() + members() - 1) % members()];
    for (std::size_t step = 1; step < members(); ++step) {
      at_hand = ranks_.pass_on(at_hand);
      const Tensor<T>& more = of_blocks[(own() + 2 * members() - 1 - step) % members()];
      for (std::size_t index = 0; index < at_hand.size(); ++index) at_hand.data()[index] += more.data()[index];
    }
    return at_hand;
  }

  // Copies the rows of one piece of every sequence out of, or into, a tensor of all rows.
  void copy_piece(const Tensor<T>& from, std::size_t piece, Tensor<T>& to, std::size_t column, const Pass<T>& pass,
                  bool takes_out_of_service) const {
    const std::size_t rows = length(pass);
    const Tensor<T>& some = takes_out_of_service ? to : from;
    for (std::size_t first = 0; first < some.rows(); first += rows) {
      const std::size_t whole_row = first * pieces(pass) + piece * rows;
      const T* source = takes_out_of_service ? from.row(whole_row) : from.row(first);
      T* target = (takes_out_of_service ? to.row(first) : to.row(whole_row)) + column;
      const std::size_t columns = takes_out_of_service ? from.columns() : some.columns();
      pass.kernels->copy({source, rows, columns, from.columns()}, {target, rows, columns, to.columns()});
    }
  }

  // The slices that the queries of a piece attend to, by part of the sequence; the last one holds the queries.
  std::vector<Tensor<T>> slices_for(std::size_t piece, const Tensor<T>& input, const std::vector<Tensor<T>>& blocks,
                                    const Pass<T>& pass) const {
    const std::size_t last = part_of_piece(own(), piece, pass);
    std::vector<Tensor<T>> slices(last + 1);
    for (std::size_t member = 0; member < members(); ++member) {
      for (std::size_t held = 0; held < pieces(pass); ++held) {
        const std::size_t part = part_of_piece(member, held, pass);
        if (part > last) continue;
        Tensor<T> slice(rows_of_piece(input.rows(), pass), input.columns());
        if (part == last) {
          copy_piece(input, held, slice, 0, pass, true);
        } else {
          Tensor<T> keys(slice.rows(), blocks[member].columns());
          copy_piece(blocks[member], held, keys, 0, pass, true);
          for (std::size_t group = 0; group < extent_.heads.kv_heads; ++group) {
            const std::size_t to = group * extent_.heads.group_width() + extent_.heads.group() * extent_.heads.head_dim;
            copy_columns(keys, group * kv_width(), slice, to, kv_width(), pass);
          }
        }
        slices[part] = slice;
      }
    }
    return slices;
  }

  void add_queries(const Tensor<T>& found, std::size_t piece, Tensor<T>& gradient, const Pass<T>& pass) const {
    for (std::size_t group = 0; group < extent_.heads.kv_heads; ++group) {
      const std::size_t column = group * extent_.heads.group_width();
      Tensor<T> queries(found.rows(), extent_.heads.group() * extent_.heads.head_dim);
      copy_columns(found, column, queries, 0, queries.columns(), pass);
      copy_piece(queries, piece, gradient, column, pass, false);
    }
  }
  void add_keys(const Tensor<T>& found, std::size_t part, std::vector<Tensor<T>>& of_blocks,
                const Pass<T>& pass) const {
    const bool late = part >= members();
    const std::size_t member = late ? parts(pass) - 1 - part : part;
    Tensor<T> keys = keys_and_values(found, pass);
    Tensor<T>& sums = of_blocks[member];
    const std::size_t rows = length(pass);
    for (std::size_t first = 0; first < keys.rows(); first += rows) {
      const T* from = keys.row(first);
      T* to = sums.row(first * pieces(pass) + (late ? rows : 0));
      for (std::size_t index = 0; index < rows * keys.columns(); ++index) to[index] += from[index];
    }
  }
  void spread_keys(const Tensor<T>& home, Tensor<T>& gradient, const Pass<T>& pass) const {
    for (std::size_t group = 0; group < extent_.heads.kv_heads; ++group) {
      const std::size_t to = group * extent_.heads.group_width() + extent_.heads.group() * extent_.heads.head_dim;
      copy_columns(home, group * kv_width(), gradient, to, kv_width(), pass);
    }
  }

  AttentionExtent extent_;
  const TensorGroup& ranks_;
  Form form_;
};

/// Wraps attention of some heads over whole sequences in all-to-alls, instead of all heads over a part of the sequences
/// (DeepSpeed Ulysses, Jacobs et al. 2309.14509 §3.2). Ranks hold the parts of the sequence in order.
template <class T>
class HeadExchange : public Layer<T> {
 public:
  /// `inner` processes a share of the columns of whole sequences of `sequence` rows.
  HeadExchange(LayerPointer<T> inner, const TensorGroup& ranks, std::size_t sequence)
      : inner_(std::move(inner)), ranks_(ranks), sequence_(sequence) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.parts.assign(1, {});
    return to_tokens(inner_->forward(to_heads(input), pass, saved.parts[0]));
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    return to_tokens(inner_->input_gradient(to_heads(output_gradient), pass, saved.parts[0]));
  }

 private:
  std::size_t members() const { return static_cast<std::size_t>(ranks_.size()); }

  // From all columns of a part of each sequence's rows to a share of the columns of all rows.
  Tensor<T> to_heads(const Tensor<T>& tokens) const {
    const std::size_t columns = tokens.columns() / members();
    const std::vector<std::size_t> each(members(), tokens.rows());
    Tensor<T> leaving(tokens.rows() * members(), columns);
    for (std::size_t member = 0; member < members(); ++member) {
      for (std::size_t row = 0; row < tokens.rows(); ++row) {
        std::copy_n(tokens.row(row) + member * columns, columns, leaving.row(member * tokens.rows() + row));
      }
    }
    const Tensor<T> arrived = ranks_.exchange_rows(leaving, each, each);
    Tensor<T> heads(arrived.rows(), columns);
    for_each_row(tokens.rows(), [&](std::size_t by_member, std::size_t by_sequence) {
      std::copy_n(arrived.row(by_member), columns, heads.row(by_sequence));
    });
    return heads;
  }
  Tensor<T> to_tokens(const Tensor<T>& heads) const {
    const std::size_t rows = heads.rows() / members();
    const std::vector<std::size_t> each(members(), rows);
    Tensor<T> leaving(heads.rows(), heads.columns());
    for_each_row(rows, [&](std::size_t by_member, std::size_t by_sequence) {
      std::copy_n(heads.row(by_sequence), heads.columns(), leaving.row(by_member));
    });
    const Tensor<T> arrived = ranks_.exchange_rows(leaving, each, each);
    Tensor<T> tokens(rows, heads.columns() * members());
    for (std::size_t member = 0; member < members(); ++member) {
      for (std::size_t row = 0; row < rows; ++row) {
        std::copy_n(arrived.row(member * rows + row), heads.columns(), tokens.row(row) + member * heads.columns());
      }
    }
    return tokens;
  }
  // Maps the row order (member, sequence, position) to (sequence, member, position); a member has `rows` rows.
  template <class Move>
  void for_each_row(std::size_t rows, Move move) const {
    const std::size_t part = sequence_ / members();
    for (std::size_t member = 0; member < members(); ++member) {
      for (std::size_t row = 0; row < rows; ++row) {
        move(member * rows + row, row / part * sequence_ + member * part + row % part);
      }
    }
  }

  LayerPointer<T> inner_;
  const TensorGroup& ranks_;
  std::size_t sequence_ = 0;
};

}  // namespace flopcast::realrun
