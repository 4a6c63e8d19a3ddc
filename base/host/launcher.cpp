#include "base/host/launcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/text/error.hpp"
#include "base/text/numbers.hpp"

namespace flopcast {

namespace {

using Variable = std::function<const char*(const char*)>;

constexpr int kLargestPort = 65535;
constexpr int kMostRanks = 1'000'000;

int whole(const std::string& field, const std::string& text, int smallest, int largest) {
  const std::optional<std::int64_t> value = parse_whole(text);
  if (!value || *value < smallest || *value > largest) {
    throw ConfigError(
        {field, fmt::format("\"{}\" is no whole number from {} to {}", text, smallest, largest), field, {}});
  }
  return static_cast<int>(*value);
}

struct Names {
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* sign = nullptr;  // that only this launcher sets, where others set its ranks too
};

// Slurm last: what mpirun starts inside its jobs has the variables of the step that mpirun itself is.
constexpr Names kLaunchers[] = {{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
                                {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                                {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALRANKID"},
                                {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}};

int required(const Variable& variable, const char* name, int smallest, int largest, const char* because) {
  const char* text = variable(name);
  if (text == nullptr) {
    throw ConfigError({name, fmt::format("is not set, although {} is", because), "environment", {}});
  }
  return whole(name, text, smallest, largest);
}

std::optional<StoreAddress> address_by(const Variable& variable) {
  const char* host = variable("MASTER_ADDR");
  const char* port = variable("MASTER_PORT");
  if (host == nullptr && port == nullptr) return std::nullopt;
  if (host == nullptr) throw ConfigError({"MASTER_ADDR", "is not set, although MASTER_PORT is", "environment", {}});
  if (port == nullptr) throw ConfigError({"MASTER_PORT", "is not set, although MASTER_ADDR is", "environment", {}});
  StoreAddress address{
      .folder = {}, .host = host, .port = whole("MASTER_PORT", port, 1, kLargestPort), .token = store_token(variable)};
  const char* agent = variable("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && std::string(agent) == "True") ++address.port;
  return address;
}

}  // namespace

std::string store_token(const Variable& variable) {
  for (const char* name : {"FLOPCAST_STORE_TOKEN", "TORCHELASTIC_RUN_ID"}) {
    const char* value = variable(name);
    if (value != nullptr && *value != '\0') return value;
  }
  // What mpirun starts on other machines need not know Slurm's job.
  const char* job = variable("SLURM_JOB_ID");
  const bool by_slurm = variable("SLURM_PROCID") != nullptr && variable("OMPI_COMM_WORLD_RANK") == nullptr;
  return job != nullptr && by_slurm ? job : "";
}

bool is_on_one_machine(int ranks, const Variable& variable) {
  for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    const char* value = variable(name);
    if (value != nullptr) return parse_whole(value) == ranks;
  }
  const char* nodes = variable("SLURM_STEP_NUM_NODES");
  return ranks == 1 || (nodes != nullptr && parse_whole(nodes) == 1);
}

StoreAddress parse_store_address(const std::string& text) {
  if (text.rfind("file:", 0) == 0 && text.size() > 5)
    return {.folder = text.substr(5), .host = {}, .port = 0, .token = {}};
  const std::size_t colon = text.rfind(':');
  if (text.rfind("tcp:", 0) == 0 && colon > 4) {
    return {.folder = {},
            .host = text.substr(4, colon - 4),
            .port = whole("--store", text.substr(colon + 1), 1, kLargestPort),
            .token = {}};
  }
  throw ConfigError(
      {"--store", fmt::format("\"{}\" is no address", text), "--store", "valid: file:FOLDER, tcp:HOST:PORT"});
}

std::optional<Launched> launched_by(const Variable& variable) {
  for (const Names& names : kLaunchers) {
    if (names.sign != nullptr && variable(names.sign) == nullptr) continue;
    if (variable(names.rank) == nullptr) {
      if (variable(names.ranks) == nullptr) continue;
      throw ConfigError({names.rank, fmt::format("is not set, although {} is", names.ranks), "environment", {}});
    }
    Launched launched;
    launched.place.ranks = required(variable, names.ranks, 1, kMostRanks, names.rank);
    launched.place.rank = whole(names.rank, variable(names.rank), 0, launched.place.ranks - 1);
    launched.place.local_rank = required(variable, names.local_rank, 0, launched.place.ranks - 1, names.rank);
    launched.store = address_by(variable);
    return launched;
  }
  return std::nullopt;
}

int launched_processes() {
  std::int64_t processes = 1;
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr) processes = std::max(processes, parse_whole(value).value_or(1));
  }
  return static_cast<int>(processes);
}

}  // namespace flopcast
