#pragma once

#include <memory>
#include <vector>

#include "realrun/compute/host_device.hpp"
#include "realrun/device/buffer.hpp"
#include "realrun/device/device.hpp"
#include "realrun/network/kernels.hpp"
#include "realrun/transport/transport.hpp"
#include "tests/realrun/queued/work_queue.hpp"

namespace flopcast::realrun {

/// A rank's GPU without a GPU: its queues are threads, and its memory is reused as soon as the host releases it. Work
/// that moments do not order is a race, which ThreadSanitizer detects and the losses reveal.
class QueuedDevice : public ComputeDevice, public Queues {
 public:
  /// Work is delayed randomly, by up to `delay` microseconds. `log`, unless null, records all queued work.
  QueuedDevice(int rank, int delay, std::shared_ptr<OrderLog> log = nullptr);

  Buffer allocate(std::size_t bytes) override;
  /// Filled with NaNs by the computation.
  Buffer reserve(std::size_t bytes) override;
  void zero(const Buffer& buffer) override;
  void draw(const Draw& draw, const Buffer& to) override;
  void copy(const Buffer& from, const Buffer& to) override;
  void add(const Buffer& from, const Buffer& to) override;
  void optimize(const UpdateRule& rule, int step, const Buffer& weights, const Buffer& gradients,
                const std::vector<Buffer>& states, const Buffer& updated) override;
  void upload(const std::byte* from, const Buffer& to) override;
  void download(const Buffer& from, std::byte* to) override;
  Mark mark() override { return {0, record(Queue::kCompute)}; }
  Ticks time_of(const Mark& mark) override { return mark.moment->time(); }

  Queue add_queue() override;
  Buffer reserve_word() override { return allocate(sizeof(float)); }
  std::shared_ptr<Moment> record(Queue queue) override { return of(queue).record(); }
  void wait(Queue queue, const std::shared_ptr<Moment>& moment) override { of(queue).wait(moment); }
  void copy(Queue queue, const Buffer& from, const Buffer& to) override;
  void reduce(Queue queue, const std::vector<Buffer>& inputs, Element element, Reduction reduction,
              const Buffer& output) override;

  int queues() const { return static_cast<int>(queues_.size()); }
  WorkQueue& of(Queue queue) { return *queues_.at(static_cast<std::size_t>(queue)); }
  void settle() { record(Queue::kCompute)->time(); }

 private:
  Buffer take(std::size_t bytes);

  unsigned seed_ = 0;
  int delay_ = 0;
  std::shared_ptr<OrderLog> log_;
  MemoryPool pool_;
  std::vector<std::unique_ptr<WorkQueue>> queues_;  // last member: its work uses the memory
};

/// The host's arithmetic in the compute queue of such a device.
class QueuedKernels : public Kernels<float> {
 public:
  explicit QueuedKernels(QueuedDevice& device) : device_(device) {}

  Tensor<float> tensor(std::size_t rows, std::size_t columns) override;
  void multiply(const MatrixView<const float>& a, const MatrixView<const float>& b, const MatrixView<float>& result,
                float factor, bool accumulate) override;
  void add(const Tensor<float>& a, const Tensor<float>& b, Tensor<float>& sum) override;
  void add_bias(const Tensor<float>& x, const float* bias, Tensor<float>& y) override;
  void add_up_rows(const Tensor<float>& x, float* sums) override;
  void norm(const Tensor<float>& x, const float* gain, const float* bias, Tensor<float>& normalised,
            Tensor<float>& scale, Tensor<float>& y) override;
  void norm_input_gradient(const Tensor<float>& dy, const Tensor<float>& normalised, const Tensor<float>& scale,
                           const float* gain, bool centred, Tensor<float>& dx) override;
  void norm_weight_gradient(const Tensor<float>& dy, const Tensor<float>& normalised, float* gain,
                            float* bias) override;
  void gelu(const Tensor<float>& x, Tensor<float>& y) override;
  void gelu_gradient(const Tensor<float>& dy, const Tensor<float>& x, Tensor<float>& dx) override;
  void gated_silu(const Tensor<float>& x, Tensor<float>& y) override;
  void gated_silu_gradient(const Tensor<float>& dy, const Tensor<float>& x, Tensor<float>& dx) override;
  void copy(const MatrixView<const float>& from, const MatrixView<float>& to) override;
  void rotate_heads(const Tensor<float>& x, const HeadLayout& heads, const RowPositions& positions, float direction,
                    Tensor<float>& y) override;
  std::vector<Tensor<float>> attention(const AttentionExtent& shape, const std::vector<Tensor<float>>& slices,
                                       Tensor<float>& output) override;
  void attention_gradient(const AttentionExtent& shape, const std::vector<Tensor<float>>& slices,
                          const std::vector<Tensor<float>>& kept, const Tensor<float>& output_gradient,
                          std::vector<Tensor<float>>& gradients) override;
  void look_up(const std::vector<int>& tokens, const VocabularyShare& share, const float* table,
               Tensor<float>& rows) override;
  void add_to_table(const std::vector<int>& tokens, const VocabularyShare& share, const Tensor<float>& rows,
                    float* table) override;
  void add_positions(const Tensor<float>& x, const RowPositions& positions, const float* table,
                     Tensor<float>& y) override;
  void add_to_positions(const Tensor<float>& dy, const RowPositions& positions, float* table) override;
  void row_maxima(const Tensor<float>& logits, Tensor<float>& maxima) override;
  void exponentials(const Tensor<float>& logits, const Tensor<float>& maxima, const std::vector<int>& targets,
                    const VocabularyShare& share, Tensor<float>& exponentials, Tensor<float>& sums,
                    Tensor<float>& target_logits) override;
  Loss normalise(Tensor<float>& exponentials, const Tensor<float>& sums, const Tensor<float>& target_logits) override;
  void cross_entropy_gradient(const Tensor<float>& probabilities, const std::vector<int>& targets,
                              const VocabularyShare& share, float weight, Tensor<float>& gradient) override;

 private:
  QueuedDevice& device_;
};

}  // namespace flopcast::realrun
