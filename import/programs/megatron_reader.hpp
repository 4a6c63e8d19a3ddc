#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "import/programs/foreign_keys.hpp"
#include "import/programs/imported_job.hpp"
#include "import/programs/launch.hpp"

namespace flopcast {

/// The --cp-comm-type of each ContextParallel.
inline constexpr std::string_view kMegatronExchanges[] = {"p2p", "a2a", "all_gather", "a2a+p2p"};

/// Reads the arguments of Megatron-LM and its descendants: names, defaults and meanings as in the sources listed in
/// import/keys/megatron.json.
class MegatronReader {
 public:
  MegatronReader(std::string_view text, const std::string& file, const ImportContext& context)
      : arguments_(text, file, context, out_), file_(file), context_(context) {}

  /// For a configuration file whose keys are these arguments; `begun` holds the values that its reader took from other
  /// keys.
  MegatronReader(const std::vector<GivenArgument>& given, const std::string& program, const std::string& file,
                 const ImportContext& context, ImportedJob begun)
      : out_(std::move(begun)), arguments_(given, program, file, context), file_(file), context_(context) {}

  ImportedJob read();

 private:
  bool given(const std::string& field) const { return context_.has(field); }
  bool names_a_model() const { return given("model") || out_.has("model"); }
  std::optional<int> put_whole(const std::string& name, const std::string& field);
  int required(const std::string& name, const std::string& field);
  void put(const std::string& field, nlohmann::json value, const std::string& name) {
    out_.put(field, std::move(value), arguments_.place(name));
  }
  void note(const std::string& text) { out_.notes.push_back(fmt::format("{}: {}", file_, text)); }
  void warn_of(const std::string& name, const std::string& how) { arguments_.warn_of(name, how, out_); }

  void read_program();
  void read_named_model();
  void read_cluster();
  void read_model();
  void read_ffn(int hidden);
  void read_key_value_heads(int heads);
  void read_norm_and_positions();
  void read_dropout();
  void read_vocabulary();
  void read_experts();
  void read_windows();
  void read_expert_layers(ForeignExperts& experts);
  void read_latent();
  void read_layout();
  void read_expert_tensor();
  void read_adapter();
  void read_context_parallel();
  bool read_context_inner();
  void read_batch();
  void read_pipeline();
  void read_stage_string();
  void read_uneven_stages();
  void read_counted_stages();
  void read_recompute();
  void read_sharding();
  void read_deepspeed_file();
  void read_precision();
  void read_overlap();
  void read_dispatcher();
  void read_optimizer();
  void read_length();
  void fit_nodes();

  ImportedJob out_;
  LaunchArguments arguments_;
  const std::string& file_;
  const ImportContext& context_;
  bool is_swift_ = false;
  bool is_slime_ = false;
  bool is_deepspeed_ = false;
  int tp_ = 1;
  int pp_ = 1;
  int cp_ = 1;
  int vpp_ = 1;
  int layers_ = 0;
};

}  // namespace flopcast
