#include "realrun/transport/nccl/nccl_api.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "base/text/error.hpp"

namespace flopcast::realrun {

namespace {

using nccl::Config;
using nccl::Result;
using Stream = void*;

int type_of(Element element) {
  switch (element) {
    case Element::kFloat32:
      return nccl::kFloat32;
    case Element::kFloat64:
      return nccl::kFloat64;
    case Element::kByte:
      break;
  }
  return nccl::kByte;
}

int operation_of(Reduction reduction) {
  return reduction == Reduction::kSum ? nccl::kSum : nccl::kMax;
}

class LoadedNccl : public NcclApi {
 public:
  explicit LoadedNccl(void* library) : library_(library) {}

  std::string version() const override {
    int version = 0;
    check(get_version_(&version), "ncclGetVersion");
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }

  NcclId new_id() override {
    NcclId id;
    check(get_id_(&id), "ncclGetUniqueId");
    return id;
  }

  Communicator join(const NcclId& id, int members, int index, int blocks) override {
    Communicator communicator = nullptr;
    begin_join(id, members, index, blocks, communicator);
    return communicator;
  }

  void begin_join(const NcclId& id, int members, int index, int blocks, Communicator& into) override {
    Config config;
    config.blocking = 1;
    if (blocks > 0) config.most_blocks = blocks;
    check(join_(&into, members, id, index, &config), "ncclCommInitRankConfig");
  }

  void begin_group() override { check(begin_group_(), "ncclGroupStart"); }
  void end_group() override { check(end_group_(), "ncclGroupEnd"); }

  void send(const Buffer& buffer, int to, Communicator communicator, void* stream) override {
    check(send_(buffer.address(), buffer.bytes(), type_of(Element::kByte), to, communicator, stream), "ncclSend");
  }

  void receive(const Buffer& into, int from, Communicator communicator, void* stream) override {
    check(receive_(into.address(), into.bytes(), type_of(Element::kByte), from, communicator, stream), "ncclRecv");
  }

  void collect(const Collective& collective, Communicator communicator, void* stream) override {
    const int type = type_of(collective.element);
    const int operation = operation_of(collective.reduction);
    const std::size_t element = size_of(collective.element);
    const std::byte* input = collective.input.address();
    std::byte* output = collective.output.address();
    switch (collective.kind) {
      case CollectiveKind::kAllReduce:
        return check(
            all_reduce_(input, output, collective.output.bytes() / element, type, operation, communicator, stream),
            "ncclAllReduce");
      case CollectiveKind::kReduceScatter:
        return check(
            reduce_scatter_(input, output, collective.output.bytes() / element, type, operation, communicator, stream),
            "ncclReduceScatter");
      case CollectiveKind::kAllGather:
        return check(all_gather_(input, output, collective.input.bytes() / element, type, communicator, stream),
                     "ncclAllGather");
      case CollectiveKind::kBroadcast:
        return check(broadcast_(output, output, collective.output.bytes() / element, type, collective.root,
                                communicator, stream),
                     "ncclBroadcast");
      case CollectiveKind::kAllToAll:
      case CollectiveKind::kBarrier:
        break;
    }
    FLOPCAST_CHECK(false && "not an NCCL operation");
  }

  std::string error_of(Communicator communicator) override {
    Result state = 0;
    const Result result = error_(communicator, &state);
    if (result != nccl::kSuccess) return error_text_(result);
    return state == nccl::kSuccess || state == nccl::kInProgress ? std::string() : std::string(error_text_(state));
  }
  // An error here has surfaced before.
  void abort(Communicator communicator) override { static_cast<void>(abort_(communicator)); }
  void leave(Communicator communicator) override { static_cast<void>(leave_(communicator)); }

 private:
  struct Symbol {
    void* address;
    template <class Function>
    operator Function*() const {  // NOLINT(google-explicit-constructor): converts to any function
      return reinterpret_cast<Function*>(address);
    }
  };
  Symbol find(const char* name) const {
    void* const address = dlsym(library_, name);
    if (address == nullptr)
      throw EnvironmentError(fmt::format("NCCL has no function {}: version 2.17 or later is required", name));
    return {address};
  }

  void check(Result result, const char* call) const {
    if (result == nccl::kSuccess || result == nccl::kInProgress) return;
    throw EnvironmentError(
        fmt::format("NCCL: {} failed: {} (set NCCL_DEBUG=WARN for details)", call, error_text_(result)));
  }

  void* library_;  // stays loaded until the program ends
  Result (*get_version_)(int*) = find("ncclGetVersion");
  const char* (*error_text_)(Result) = find("ncclGetErrorString");
  Result (*get_id_)(NcclId*) = find("ncclGetUniqueId");
  Result (*join_)(Communicator*, int, NcclId, int, Config*) = find("ncclCommInitRankConfig");
  Result (*begin_group_)() = find("ncclGroupStart");
  Result (*end_group_)() = find("ncclGroupEnd");
  Result (*send_)(const void*, std::size_t, int, int, Communicator, Stream) = find("ncclSend");
  Result (*receive_)(void*, std::size_t, int, int, Communicator, Stream) = find("ncclRecv");
  Result (*all_reduce_)(const void*, void*, std::size_t, int, int, Communicator, Stream) = find("ncclAllReduce");
  Result (*reduce_scatter_)(const void*, void*, std::size_t, int, int, Communicator,
                            Stream) = find("ncclReduceScatter");
  Result (*all_gather_)(const void*, void*, std::size_t, int, Communicator, Stream) = find("ncclAllGather");
  Result (*broadcast_)(const void*, void*, std::size_t, int, int, Communicator, Stream) = find("ncclBroadcast");
  Result (*error_)(Communicator, Result*) = find("ncclCommGetAsyncError");
  Result (*abort_)(Communicator) = find("ncclCommAbort");
  Result (*leave_)(Communicator) = find("ncclCommDestroy");
};

}  // namespace

std::unique_ptr<NcclApi> load_nccl() {
  std::vector<std::string> names;
  if (const char* given = std::getenv("FLOPCAST_NCCL_LIBRARY")) names.emplace_back(given);
  names.insert(names.end(), {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"});
  std::string tried;
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return std::make_unique<LoadedNccl>(library);
    const char* reason = dlerror();
    tried += fmt::format("\n  {}", reason == nullptr ? name : reason);
  }
  throw EnvironmentError(fmt::format(
      "NCCL, which --backend nccl requires, was not found:{}\n  help: install libnccl2 or the Python package "
      "nvidia-nccl-cu13, and set FLOPCAST_NCCL_LIBRARY to its libnccl.so.2 or LD_LIBRARY_PATH to its folder",
      tried));
}

}  // namespace flopcast::realrun
