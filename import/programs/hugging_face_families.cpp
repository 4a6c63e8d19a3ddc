#include <nlohmann/json.hpp>
#include <sstream>

#include "import/programs/hugging_face_reader.hpp"

namespace flopcast {

const HuggingFaceFamilies& hugging_face_families() {
  static const HuggingFaceFamilies all = [] {
    HuggingFaceFamilies found;
    for (const EmbeddedFile& file : embedded_keys()) {
      if (file.path != "hugging_face.json") continue;
      const nlohmann::json table = parse_json(file.text, std::string(file.path));
      for (const auto& group : table.at("families").items()) {
        const nlohmann::json& said = group.value();
        HuggingFaceFamily family;
        family.gated = said.value("gated", true);
        family.layernorm = said.value("norm", "rmsnorm") == "layernorm";
        family.norm_key = said.value("norm_key", "");
        family.biases = said.value("biases", "none");
        family.positions = said.value("positions", "rotary");
        family.tied = said.value("tied", false);
        family.qk_norm = said.value("qk_norm", false);
        family.whole_qk_norm = said.value("whole_qk_norm", false);
        family.attention_sinks = said.value("attention_sinks", false);
        family.embedding_norm = said.value("embedding_norm", false);
        family.causal = said.value("causal", true);
        family.dropout = said.value("dropout", false);
        family.halved_ffn = said.value("halved_ffn", false);
        family.shared_routed = said.value("shared_routed", false);
        family.kv_heads = said.value("kv_heads", 0);
        family.length = said.value("length", 0);
        family.post_norms = said.value("post_norms", false);
        family.block = said.value("block", "sequential");
        family.block_key = said.value("block_key", "");
        family.has_windows = said.contains("window");
        family.window = said.value("window", 0);
        family.full_every = said.value("full_every", 0);
        family.windows_off = said.value("windows_off", false);
        family.defaults = said.value("defaults", nlohmann::json::object());
        std::istringstream names(group.key());
        for (std::string name; names >> name;) found.known[name] = family;
      }
      for (const auto& group : table.at("refused_families").items()) {
        std::istringstream names(group.value().get<std::string>());
        for (std::string name; names >> name;) found.refused[name] = group.key();
      }
    }
    return found;
  }();
  return all;
}

}  // namespace flopcast
