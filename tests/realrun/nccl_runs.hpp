#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "realrun/transport/nccl/nccl_transport.hpp"
#include "tests/realrun/loss_matrix.hpp"
#include "tests/realrun/queued/fake_nccl.hpp"
#include "tests/realrun/queued/queued_machine.hpp"

namespace flopcast::realrun {

/// Waits for the device before host code reads its buffers.
class SettledNccl : public NcclTransport {
 public:
  SettledNccl(NcclApi& nccl, QueuedDevice& device, Store& store, const NcclOptions& options)
      : NcclTransport(
            nccl, device, [&device](Queue queue) { return &device.of(queue); }, store, options),
        device_(device) {}
  void run(const Group& group, const Collective& collective) override {
    NcclTransport::run(group, collective);
    device_.settle();
  }
  void wait(const Request& request) override {
    NcclTransport::wait(request);
    device_.settle();
  }

 private:
  QueuedDevice& device_;
};

/// Ranks that are threads, each with its own store and device, over a fake NCCL.
class NcclRuns {
 public:
  explicit NcclRuns(int ranks, std::chrono::milliseconds patience = std::chrono::seconds(20))
      : ranks_(ranks), patience_(patience), server_(serve_tcp_store({})) {}

  FakeNccl& nccl() { return nccl_; }
  /// Logs the ranks' work from here on.
  void log_order() {
    for (int rank = 0; rank < ranks_; ++rank) logs_.push_back(std::make_shared<OrderLog>());
  }
  const std::vector<std::shared_ptr<OrderLog>>& logs() const { return logs_; }
  using MakeDevice = std::function<std::unique_ptr<QueuedDevice>(int rank, std::shared_ptr<OrderLog> log)>;
  void on(MakeDevice make_device) { make_device_ = std::move(make_device); }
  /// See NcclOptions::abandon.
  void on_abandon(std::function<void(const std::string&)> abandon) { abandon_ = std::move(abandon); }

  // Returns the failure that each rank's transport reports.
  template <class TransportOf = NcclTransport>
  std::vector<std::string> run(const std::function<void(NcclTransport&, QueuedDevice&)>& body) {
    std::vector<std::string> failures(static_cast<std::size_t>(ranks_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&, rank] { failures[static_cast<std::size_t>(rank)] = run_rank<TransportOf>(rank, body); });
    }
    for (std::thread& thread : threads) thread.join();
    return failures;
  }

 private:
  template <class TransportOf>
  std::string run_rank(int rank, const std::function<void(NcclTransport&, QueuedDevice&)>& body) {
    const auto store = open_tcp_store("127.0.0.1", server_->port(), "", std::chrono::seconds(10));
    const auto own = make_device_(rank, logs_.empty() ? nullptr : logs_[static_cast<std::size_t>(rank)]);
    QueuedDevice& device = *own;
    const NcclOptions options{.place = {rank, ranks_, rank}, .patience = patience_, .abandon = abandon_};
    const auto transport = make<TransportOf>(device, *store, options);
    try {
      gather_ranks(*store, options.place, std::chrono::seconds(10));
      body(*transport, device);
      transport->note({.kind = Activity::Kind::kDone, .action = {}});
      store->set(kDoneKey + std::to_string(rank), "");
      for (int other = 0; other < ranks_; ++other) {
        wait_for(*store, kDoneKey + std::to_string(other), std::chrono::seconds(20), "the end of a rank");
      }
    } catch (const Aborted&) {
      return transport->failure();
    } catch (const std::exception& error) {
      transport->fail(error.what());
      return transport->failure();
    }
    return {};
  }

  template <class TransportOf>
  std::unique_ptr<TransportOf> make(QueuedDevice& device, Store& store, const NcclOptions& options) {
    if constexpr (std::is_same_v<TransportOf, SettledNccl>) {
      return std::make_unique<SettledNccl>(nccl_, device, store, options);
    } else {
      return std::make_unique<NcclTransport>(
          nccl_, device, [&device](Queue queue) { return &device.of(queue); }, store, options);
    }
  }

  int ranks_;
  std::chrono::milliseconds patience_;
  std::function<void(const std::string&)> abandon_;
  std::vector<std::shared_ptr<OrderLog>> logs_;
  MakeDevice make_device_ = [](int rank, std::shared_ptr<OrderLog> log) {
    return std::make_unique<QueuedDevice>(rank, 0, std::move(log));
  };
  FakeNccl nccl_;
  std::unique_ptr<TcpServer> server_;
};

/// Every schedule once, and every layout.
inline std::vector<MatrixCase> every_fourth() {
  std::vector<MatrixCase> chosen;
  const std::vector<MatrixCase> all = schedules_by_layouts();
  for (std::size_t index = 0; index < all.size(); index += 4) chosen.push_back(all[index]);
  return chosen;
}

}  // namespace flopcast::realrun
