#include "cli/measured/sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

double parse_scale(const std::string& text) {
  const auto number = [](const std::string& part) -> double {
    char* end = nullptr;
    const double value = std::strtod(part.c_str(), &end);
    return !part.empty() && *end == '\0' && std::isfinite(value) ? value : -1.0;
  };
  const std::size_t slash = text.find('/');
  const double scale =
      slash == std::string::npos ? number(text) : number(text.substr(0, slash)) / number(text.substr(slash + 1));
  if (scale > 0.0 && scale <= 1.0) return scale;
  throw ConfigError({"--scale", fmt::format("\"{}\" is no share of a model", text), "--scale",
                     "above 0 and at most 1, such as 1/64"});
}

namespace {

class Scaler {
 public:
  /// `lists_layers`: the job says how many layers each stage has.
  Scaler(const PreparedStep& step, double scale, bool lists_layers)
      : step_(step), scale_(scale), lists_layers_(lists_layers), job_(step.job) {}

  Job scaled() {
    const Layout& layout = job_.layout;
    Transformer& model = job_.model;
    scale_depth();
    const int sequence_parts = std::lcm(2 * layout.cp * layout.tp, step_.program.slices_per_microbatch);
    job_.training.sequence_length = size(job_.training.sequence_length, sequence_parts, kLeastSequence);
    model.sequence_length = job_.training.sequence_length;
    for (int* window : {&model.sliding_window, &model.attention_chunk}) {
      if (*window > 0) *window = size(*window, 1, 1);
    }
    scale_width();
    model.vocab = size(model.vocab, layout.tp, kLeastVocabulary);
    return job_;
  }

 private:
  static constexpr int kLeastSequence = 16;
  static constexpr int kLeastVocabulary = 64;
  static constexpr int kLeastHead = 4;

  // A multiple of `unit`, at least `least`.
  int size(int whole, int unit, int least) const {
    const double wanted = std::max(static_cast<double>(whole) * scale_, static_cast<double>(least));
    return static_cast<int>(std::ceil(wanted / unit - 1e-9)) * unit;
  }

  void scale_depth() {
    Transformer& model = job_.model;
    const int whole = model.layers;
    std::vector<int>& listed = job_.layout.stage_layers;
    model.layers = size(whole, step_.stages.model_stages, 1);
    if (lists_layers_) {
      for (int& layers : listed) layers = layers == 0 ? 0 : size(layers, 1, 1);
      model.layers = std::accumulate(listed.begin(), listed.end(), 0);
    } else {
      listed.clear();
    }
    const double share = static_cast<double>(model.layers) / whole;
    model.windowed_layers = static_cast<int>(std::lround(model.windowed_layers * share));
    if (!model.experts) return;
    Experts& experts = *model.experts;
    experts.first_dense_layers =
        std::min(model.layers - 1, static_cast<int>(std::ceil(experts.first_dense_layers * share)));
    experts.every = std::min(experts.every, model.layers);
  }

  // As large a share of groups as before, of as many as the experts that are left are of.
  static void scale_groups(Experts& experts) {
    if (experts.groups == 0) return;
    const int groups = std::gcd(experts.groups, experts.count);
    experts.group_top_k = (experts.group_top_k * groups + experts.groups - 1) / experts.groups;
    experts.groups = groups;
    const bool enough = experts.count / groups * experts.group_top_k >= experts.top_k;
    if (groups == 1 || !enough) experts.groups = experts.group_top_k = 0;
  }

  void scale_width() {
    const Layout& layout = job_.layout;
    Transformer& model = job_.model;
    const Transformer whole = model;
    const bool shares_keys = model.kv_heads < model.heads;
    model.kv_heads = size(model.kv_heads, layout.tp, 1);
    model.heads = shares_keys ? 2 * model.kv_heads : size(model.heads, layout.tp, 1);
    if (!shares_keys) model.kv_heads = model.heads;
    const double width = static_cast<double>(whole.heads) * whole.head_dim * scale_ / model.heads;
    model.head_dim = std::max(kLeastHead, 2 * static_cast<int>(std::ceil(width / 2.0 - 1e-9)));
    const bool as_wide = whole.heads * whole.head_dim == whole.hidden;
    model.hidden = as_wide ? model.heads * model.head_dim : size(model.hidden, 2 * layout.tp, kLeastHead);
    // As many times the hidden size as before.
    const double ratio = static_cast<double>(model.hidden) / whole.hidden;
    const auto in_proportion = [&](int value) {
      return static_cast<int>(std::ceil(value * ratio / layout.tp - 1e-9)) * layout.tp;
    };
    model.ffn = in_proportion(model.ffn);
    if (model.experts) {
      Experts& experts = *model.experts;
      experts.count = size(experts.count, layout.ep, 2);
      experts.top_k = std::min(experts.top_k, std::max(1, experts.count / 2));
      scale_groups(experts);
      experts.ffn = in_proportion(experts.ffn);
      experts.shared_ffn = in_proportion(experts.shared_ffn);
    }
    if (!model.latent) return;
    LatentAttention& latent = *model.latent;
    for (int* part :
         {&latent.query_rank, &latent.key_value_rank, &latent.nope_dim, &latent.rope_dim, &latent.value_dim}) {
      if (*part > 0) *part = size(*part, 2, kLeastHead);
    }
  }

  const PreparedStep& step_;
  double scale_;
  bool lists_layers_;
  Job job_;
};

std::string change(const char* what, int became, int whole) {
  return fmt::format("{} {} (of {})", what, became, whole);
}

std::string told_of(const Transformer& became, const Transformer& whole, int sequence, int whole_sequence) {
  const auto counted = [](const Transformer& model) {
    return static_cast<double>(count_parameters(model).total) / 1e6;
  };
  std::string text = fmt::format(
      "{} became: {}, {}, {} of width {}, {}, {}, {}", whole.name, change("layers", became.layers, whole.layers),
      change("hidden size", became.hidden, whole.hidden), change("heads", became.heads, whole.heads), became.head_dim,
      change("MLP width", became.ffn, whole.ffn), change("vocabulary", became.vocab, whole.vocab),
      change("sequence", sequence, whole_sequence));
  if (became.kv_heads != became.heads) text += ", " + change("key/value heads", became.kv_heads, whole.kv_heads);
  if (became.experts) text += ", " + change("experts", became.experts->count, whole.experts->count);
  return text + fmt::format("; {:.3g} million parameters (of {:.0f})", counted(became), counted(whole));
}

}  // namespace

ScaledJob scaled_job(const LoadedJob& whole, const PreparedStep& step, double scale) {
  if (step.job.profile) {
    throw ConfigError({"--scale", "measured layers have no shape to scale", "--scale", "a transformer"});
  }
  ScaledJob result{whole, {}};
  nlohmann::json& root = result.job.root;
  const bool has_layout = root.contains("layout") && root.at("layout").is_object();
  const bool lists_layers = has_layout && root.at("layout").contains("stage_layers");
  const Job job = Scaler(step, scale, lists_layers).scaled();
  const nlohmann::json told = nlohmann::json::parse(job_json(job).dump());
  root["model"] = told.at("model");
  root["training"]["sequence_length"] = job.training.sequence_length;
  if (lists_layers) root["layout"]["stage_layers"] = job.layout.stage_layers;
  result.told = told_of(job.model, step.job.model, job.training.sequence_length, step.job.training.sequence_length);
  return result;
}

}  // namespace flopcast
