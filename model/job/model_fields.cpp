#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/catalog/catalogue.hpp"
#include "model/hardware/cluster.hpp"
#include "model/job/fields.hpp"
#include "model/workload/transformer.hpp"

namespace flopcast {

namespace {

constexpr int kLargestWidth = 10'000'000;
constexpr int kMostExperts = 1'000'000;
constexpr int kMostMtpModules = 64;
constexpr int kMostProfiledSamples = 1'000'000'000;
constexpr int kLongestProfiledSample = 100'000'000;
constexpr int kMostNodes = 1'000'000;
constexpr int kMostDevicesPerNode = 1'024;
constexpr int kMostMultiprocessors = 100'000;
constexpr int kMostGroupRanks = 1'000'000;

constexpr std::string_view kInlineModel = "an inline model needs layers, hidden, heads, vocab and sequence_length";
constexpr std::string_view kInlineDevice = "an inline device needs it";
constexpr std::string_view kInlineCluster = "an inline cluster needs it";
constexpr std::string_view kLatent = "latent attention needs it";
constexpr std::string_view kOfItsGeneration = "its generation's";

template <CatalogueKind Kind>
std::vector<std::string> entries_of() {
  return catalogue_names(Kind);
}

std::vector<std::string> precision_choices() {
  std::vector<std::string> names = names_of<Precision>();
  names.emplace_back(kFp4);
  return names;
}

void read_peaks(ObjectReader& reader, const FieldInfo& field, Device& device) {
  auto peaks = reader.object(field.key);
  if (!peaks) reader.fail_missing(field.key, R"(such as {"bf16": "312TFLOP/s"})");
  auto& rates = device.peak;
  for (std::size_t index = 0; index < rates.size(); ++index) {
    const auto rate = peaks->quantity(names_of<Precision>()[index], Dimension::kFlopRate);
    rates[index] = FlopsPerSecond(rate.value_or(0.0));
  }
  device.peak_fp4 = FlopsPerSecond(peaks->quantity(kFp4, Dimension::kFlopRate).value_or(0.0));
  peaks->refuse_unknown_keys();
}

OrderedJsonValue write_peaks(const FieldInfo&, const Device& device) {
  nlohmann::ordered_json peaks = nlohmann::ordered_json::object();
  const auto& rates = device.peak;
  for (std::size_t index = 0; index < rates.size(); ++index) {
    if (rates[index].value() <= 0.0) continue;
    peaks[names_of<Precision>()[index]] = quantity_text(rates[index].value(), Dimension::kFlopRate);
  }
  const FlopsPerSecond fp4 = device.peak_fp4;
  if (fp4.value() > 0.0) peaks[std::string(kFp4)] = quantity_text(fp4.value(), Dimension::kFlopRate);
  return peaks;
}

OrderedJsonValue write_efficiencies(const FieldInfo&, const Device& device) {
  nlohmann::ordered_json shares;
  const auto& efficiencies = device.gemm_efficiency_by_precision;
  for (std::size_t index = 0; index < efficiencies.size(); ++index) {
    if (efficiencies[index] > 0.0) shares[names_of<Precision>()[index]] = efficiencies[index];
  }
  const double in_4_bits = device.gemm_efficiency_fp4;
  if (in_4_bits > 0.0) shares[std::string(kFp4)] = in_4_bits;
  return shares;
}

// A count; a list of nodes that differ is for the cluster's reader.
void read_nodes(ObjectReader& reader, const FieldInfo& field, Cluster& cluster) {
  if (reader.find(field.key)->is_array()) return;
  cluster.nodes = *reader.whole(field.key, 1, kMostNodes);
}

OrderedJsonValue write_nodes(const FieldInfo&, const Cluster& cluster) {
  if (!cluster.uneven()) return cluster.nodes;
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const ClusterNode& node : cluster.uneven_nodes) {
    nlohmann::ordered_json json = write_fields(node_fields(), node);
    json["device"] = write_fields(device_fields(), cluster.node_devices[static_cast<std::size_t>(node.device)]);
    nodes.push_back(std::move(json));
  }
  return nodes;
}

std::vector<std::string> curve_kinds() {
  std::vector<std::string> kinds;
  for (GroupCurve curve; const std::optional<CollectiveKind>& collective : kCurveKinds) {
    curve.collective = collective;
    kinds.emplace_back(curve.name());
  }
  return kinds;
}
void read_curve_kind(ObjectReader& reader, const FieldInfo& field, GroupCurve& group_curve) {
  const auto index = reader.choice(field.key, curve_kinds());
  if (index) group_curve.collective = kCurveKinds[*index];
}
OrderedJsonValue write_curve_kind(const FieldInfo&, const GroupCurve& group_curve) {
  return group_curve.name();
}

void read_segments(ObjectReader& reader, const FieldInfo& field, GroupCurve& group_curve) {
  std::vector<MessageSegment> segments;
  for (ObjectReader& one : reader.objects(field.key)) {
    MessageSegment segment;
    read_fields(segment_fields(), one, segment);
    one.refuse_unknown_keys();
    const bool ascends = segments.empty() ? segment.from.value() == 0.0 : segments.back().from < segment.from;
    if (!ascends) {
      one.fail("from_bytes", fmt::format("{} does not follow the segment before", segment.from.value()),
               "expected 0 for the first segment, then ascending sizes");
    }
    segments.push_back(segment);
  }
  if (segments.empty()) reader.fail_missing(field.key, std::string(field.needed));
  group_curve.curve = MessageCurve(std::move(segments));
}
OrderedJsonValue write_segments(const FieldInfo&, const GroupCurve& group_curve) {
  nlohmann::ordered_json segments = nlohmann::ordered_json::array();
  for (const MessageSegment& segment : group_curve.curve.segments()) {
    segments.push_back(write_fields(segment_fields(), segment));
  }
  return segments;
}

OrderedJsonValue write_layers(const FieldInfo&, const LayerProfile& profile) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const ProfiledLayer& layer : profile.layers) {
    layers.push_back(write_fields(profiled_layer_fields(), layer));
    layers.back()["parameter_bytes"] = layer.parameters * element_size(profile.precision).value();
  }
  return layers;
}

}  // namespace

const Fields<Experts>& experts_fields() {
  static const Fields<Experts> fields = {
      whole<&Experts::count>("count", 1, kMostExperts, "experts of a layer")
          .flag("N", {"--num-experts"})
          .required("the number of routed experts in a layer"),
      whole<&Experts::top_k>("top_k", 1, kMostExperts, "experts each token goes to")
          .flag("N", {"--moe-router-topk"})
          .required("how many experts each token goes to"),
      whole<&Experts::ffn>("ffn", 1, kLargestWidth, "MLP width of an expert")
          .flag("N", {"--moe-ffn-hidden-size"})
          .required("the MLP width of one expert"),
      whole<&Experts::shared>("shared", 0, kMostExperts, "experts that see every token").flag("N"),
      whole<&Experts::shared_ffn>("shared_ffn", 0, kLargestWidth, "MLP width of a shared expert")
          .flag("N")
          .otherwise("that of the others"),
      whole<&Experts::first_dense_layers>("first_dense_layers", 0, kLargestLayers,
                                          "layers before the first with experts")
          .flag("N"),
      share<&Experts::capacity_factor>("capacity_factor", 1000.0,
                                       "rows of an expert in fair shares, padded (default: as many as come)")
          .flag("C", {"--moe-expert-capacity-factor"}),
      whole<&Experts::every>("every", 1, kLargestLayers, "experts in every N-th layer").flag("N"),
      whole<&Experts::groups>("groups", 0, kMostExperts,
                              "groups of experts that the router chooses among first; 0 or 1: none")
          .flag("N", {"--moe-router-num-groups"}),
      whole<&Experts::group_top_k>("group_top_k", 0, kMostExperts, "of these, those with the experts of a token")
          .flag("N", {"--moe-router-group-topk"}),
      amount<&Experts::imbalance>("imbalance", "standard deviation of an expert's rows over their mean").flag("C"),
      boolean<&Experts::router_bias>("router_bias", "a trained bias of the router's scores").flag(""),
  };
  return fields;
}

const Fields<LatentAttention>& latent_fields() {
  static const Fields<LatentAttention> fields = {
      whole<&LatentAttention::query_rank>("q_lora_rank", 0, kLargestWidth, "width of the query latent, 0 for none")
          .flag("N", {"--q-lora-rank"}),
      whole<&LatentAttention::key_value_rank>("kv_lora_rank", 1, kLargestWidth, "width of the key-value latent")
          .flag("N", {"--kv-lora-rank"})
          .required(kLatent),
      whole<&LatentAttention::nope_dim>("qk_nope_head_dim", 1, kLargestWidth, "width of a head without position")
          .flag("N", {"--qk-head-dim"})
          .required(kLatent),
      whole<&LatentAttention::rope_dim>("qk_rope_head_dim", 1, kLargestWidth, "rotated width of a head")
          .flag("N", {"--qk-pos-emb-head-dim"})
          .required(kLatent),
      whole<&LatentAttention::value_dim>("v_head_dim", 1, kLargestWidth, "width of a value head")
          .flag("N", {"--v-head-dim"})
          .required(kLatent),
  };
  return fields;
}

const Fields<Transformer>& transformer_fields() {
  static const Fields<Transformer> fields = {
      text<&Transformer::name>("name", "model: a catalogue name, or the path of a layer profile")
          .flag("NAME")
          .names_object()
          .among(&entries_of<CatalogueKind::kModels>),
      other("description", FieldKind::kText, "what it is"),
      whole<&Transformer::layers>("layers", 1, kLargestLayers, "transformer layers")
          .flag("N", {"--num-layers"})
          .required(kInlineModel),
      whole<&Transformer::hidden>("hidden", 1, kLargestWidth, "hidden size h")
          .flag("N", {"--hidden-size"})
          .required(kInlineModel),
      whole<&Transformer::heads>("heads", 1, kLargestWidth, "attention heads")
          .flag("N", {"--num-attention-heads"})
          .required(kInlineModel),
      whole<&Transformer::kv_heads>("kv_heads", 1, kLargestWidth, "key/value heads")
          .flag("N", {"--num-query-groups"})
          .otherwise("heads"),
      whole<&Transformer::head_dim>("head_dim", 1, kLargestWidth, "width of a head")
          .flag("N", {"--kv-channels"})
          .otherwise("hidden / heads"),
      whole<&Transformer::ffn>("ffn", 1, kLargestWidth, "MLP width")
          .flag("N", {"--ffn-hidden-size"})
          .otherwise("4 · hidden"),
      whole<&Transformer::vocab>("vocab", 1, kLargestWidth, "vocabulary")
          .flag("N", {"--vocab-size"})
          .required(kInlineModel),
      whole<&Transformer::sequence_length>("sequence_length", 1, kLargestWidth,
                                           "sequence length the model was made for")
          .flag("N")
          .required(kInlineModel),
      boolean<&Transformer::gated_mlp>("gated_mlp", "three MLP matrices (SwiGLU)").flag("", {"--swiglu"}),
      boolean<&Transformer::biases>("biases", "biases on the linears").flag("").otherwise("with norm layernorm"),
      boolean<&Transformer::attention_bias>("attention_bias", "biases on queries, keys and values alone")
          .flag("", {"--add-qkv-bias"})
          .otherwise("biases"),
      boolean<&Transformer::qk_norm>("qk_norm", "a norm over each query and key head").flag("", {"--qk-layernorm"}),
      boolean<&Transformer::whole_qk_norm>("whole_qk_norm", "that norm spans all heads").flag(""),
      boolean<&Transformer::attention_sinks>("attention_sinks", "a trained score a head that no value answers to")
          .flag(""),
      boolean<&Transformer::causal>("causal", "false: every token attends to every other").flag(""),
      boolean<&Transformer::embedding_norm>("embedding_norm", "a norm behind the embedding").flag(""),
      boolean<&Transformer::post_norms>("post_norms", "norms behind attention and MLP, too").flag(""),
      choice<&Transformer::block>("block", "attention and MLP one after the other, or side by side").flag("FORM"),
      whole<&Transformer::sliding_window>("sliding_window", 0, kLargestWidth,
                                          "last tokens that attention sees, 0 for all")
          .flag("N"),
      whole<&Transformer::attention_chunk>("attention_chunk", 0, kLargestWidth,
                                           "attention inside chunks of N tokens, 0 for none")
          .flag("N"),
      whole<&Transformer::windowed_layers>("windowed_layers", 0, kLargestLayers, "layers with a window or chunks")
          .flag("N")
          .otherwise("all, where there is a window"),
      part<&Transformer::experts, experts_fields>("experts", "a mixture of experts in place of the MLP"),
      part<&Transformer::latent, latent_fields>("mla", "multi-head latent attention"),
      whole<&Transformer::mtp_layers>("mtp_layers", 0, kMostMtpModules, "modules that predict further tokens")
          .flag("N", {"--mtp-num-layers"}),
      boolean<&Transformer::dropout>("dropout", "dropout, with its stored masks")
          .flag("")
          .otherwise("with norm layernorm"),
      choice<&Transformer::norm>("norm", "layernorm or rmsnorm").flag("NORM"),
      choice<&Transformer::positions>("positions", "learned, rotary, alibi or none").flag("KIND"),
      boolean<&Transformer::tied_embeddings>("tied_embeddings", "the head shares the embedding's table").flag(""),
  };
  return fields;
}

const Fields<ProfiledLayer>& profiled_layer_fields() {
  static const Fields<ProfiledLayer> fields = {
      text<&ProfiledLayer::name>("name", "for messages and tables"),
      amount<&ProfiledLayer::forward>("forward_s", "forward time of one microbatch")
          .required("the forward time of one microbatch in seconds"),
      other("backward_s", FieldKind::kNumber, "its backward time, in place of its two parts"),
      amount<&ProfiledLayer::input_gradient>("input_gradient_s", "time of the input gradient"),
      amount<&ProfiledLayer::weight_gradient>("weight_gradient_s", "time of the weight gradient"),
      amount<&ProfiledLayer::activation>("activation_bytes", "kept from forward until backward"),
      amount<&ProfiledLayer::output>("output_bytes", "what crosses a cut behind this layer"),
      other("parameter_bytes", FieldKind::kNumber, "of its weights, in the profile's precision"),
  };
  return fields;
}

const Fields<LayerProfile>& layer_profile_fields() {
  static const Fields<LayerProfile> fields = {
      other("name", FieldKind::kText, "of the model"),
      whole<&LayerProfile::micro_batch_size>("micro_batch_size", 1, kMostProfiledSamples,
                                             "samples of the microbatch that a layer profile measured")
          .flag("N"),
      text<&LayerProfile::measured_on>("measured_on", "a layer profile's device and software, in words"),
      choice<&LayerProfile::precision>("precision", "the format that a layer profile was measured in"),
      whole<&LayerProfile::sequence_length>("sequence_length", 1, kLongestProfiledSample, "tokens of a sample"),
      custom<LayerProfile>("layers", FieldKind::kList, "measured layers", nullptr, &write_layers)
          .of<profiled_layer_fields>(),
  };
  return fields;
}

FieldInfos model_fields() {
  FieldInfos all = infos_of<transformer_fields>();
  const auto known = [&all](const FieldInfo& field) {
    return std::any_of(all.begin(), all.end(), [&field](const FieldInfo* other) { return other->key == field.key; });
  };
  auto after_name = all.begin() + 1;
  for (const FieldInfo* field : infos_of<layer_profile_fields>()) {
    if (!known(*field)) after_name = all.insert(after_name, field) + 1;
  }
  return all;
}

const Fields<GemmKernel>& gemm_kernel_fields() {
  constexpr int kLargestTile = 4'096;
  constexpr int kDeepest = 1'000'000;
  constexpr double kLargestShare = 1e6;  // operands that stay in a cache stream faster than memory does
  static const Fields<GemmKernel> fields = {
      whole<&GemmKernel::tile>("tile", 0, kLargestTile, "side of its square tile, 0: the best of a GPU library's"),
      whole<&GemmKernel::overhead_depth>("overhead_depth", 0, kDeepest,
                                         "k-equivalent of filling and draining a tile's pipeline"),
      whole<&GemmKernel::weight_gradient_depth>("weight_gradient_depth", 0, kDeepest,
                                                "overhead_depth of weight gradients")
          .otherwise("overhead_depth where that is given, or 60"),
      share<&GemmKernel::memory_efficiency>("memory_efficiency", kLargestShare,
                                            "share of the memory bandwidth that operands reach"),
      boolean<&GemmKernel::overlapped>("overlapped", "operands stream while it multiplies"),
      share<&GemmKernel::wave_share>("wave_share", 1.0, "what the empty places of a last wave of tiles cost"),
  };
  return fields;
}

const Fields<Device>& device_fields() {
  static const Fields<Device> fields = {
      text<&Device::name>("name", "device: a catalogue name")
          .flag("NAME")
          .names_object()
          .among(&entries_of<CatalogueKind::kDevices>),
      other("description", FieldKind::kText, "what it is"),
      choice<&Device::generation>("generation", "of the GPU, or cpu").required(),
      custom<Device>("peak", FieldKind::kObject, "dense rate of products by precision", &read_peaks, &write_peaks)
          .required(R"(such as {"bf16": "312TFLOP/s"})")
          .among(&precision_choices),
      quantity<&Device::memory_capacity>("memory_capacity", Dimension::kBytes, "of its memory")
          .required(kInlineDevice)
          .above_zero(),
      quantity<&Device::memory_bandwidth>("memory_bandwidth", Dimension::kBandwidth, "of its memory")
          .required(kInlineDevice)
          .above_zero(),
      whole<&Device::multiprocessors>("multiprocessors", 1, kMostMultiprocessors, "that run kernels side by side")
          .required(kInlineDevice),
      share<&Device::gemm_efficiency>("gemm_efficiency", 1.0, "share of the peak that products reach in a step")
          .otherwise("kernel_efficiency · sustained_share, or its generation's"),
      share<&Device::memory_efficiency>("memory_efficiency", 1.0, "share of the memory bandwidth that kernels reach")
          .otherwise(kOfItsGeneration),
      share<&Device::adam_efficiency>("adam_efficiency", 1.0,
                                      "share of the memory bandwidth that Adam's update reaches")
          .otherwise("memory_efficiency")
          .zero_is_none(),
      share<&Device::flash_forward_efficiency>("flash_forward_efficiency", 1.0,
                                               "share of the peak that fused attention reaches")
          .otherwise(kOfItsGeneration),
      share<&Device::flash_backward_efficiency>("flash_backward_efficiency", 1.0,
                                                "share of the peak that fused attention's backward pass reaches")
          .otherwise(kOfItsGeneration),
      quantity<&Device::kernel_launch>("kernel_launch", Dimension::kTime, "between two kernels of a busy stream")
          .otherwise(kOfItsGeneration)
          .above_zero(),
      custom<Device>("gemm_efficiency_by_precision", FieldKind::kObject, "the same where a precision differs", nullptr,
                     &write_efficiencies)
          .among(&precision_choices),
      quantity<&Device::tdp_w>("tdp", Dimension::kPower, "thermal design power").zero_is_none(),
      quantity<&Device::power_limit_w>("power_limit", Dimension::kPower, "set below the tdp: products slow down")
          .zero_is_none(),
      quantity<&Device::boost_clock_hz>("boost_clock", Dimension::kFrequency, "that the peaks are stated for")
          .zero_is_none(),
      quantity<&Device::clock_hz>("clock", Dimension::kFrequency, "locked below boost_clock: products slow down")
          .zero_is_none(),
      other("kernel_efficiency", FieldKind::kNumber, "share of the peak that products reach by themselves").up_to(1.0),
      other("sustained_share", FieldKind::kNumber, "share of that rate which a step sustains").up_to(1.0),
      other("kernel_efficiency_by_precision", FieldKind::kObject, "the same where a precision differs")
          .among(&precision_choices),
      part<&Device::gemm_kernel, gemm_kernel_fields>("gemm_kernel", "how its matrix library works"),
  };
  return fields;
}

const Fields<ClusterNode>& node_fields() {
  static const Fields<ClusterNode> fields = {
      whole<&ClusterNode::devices>("devices", 1, kMostDevicesPerNode, "devices in the node"),
      other("device", FieldKind::kObject, "in place of the cluster's").of<device_fields>(),
  };
  return fields;
}

const Fields<MessageSegment>& segment_fields() {
  static const Fields<MessageSegment> fields = {
      measured<&MessageSegment::from>("from_bytes", "the smallest message of the segment"),
      measured<&MessageSegment::alpha>("alpha_s", "its time of no bytes"),
      measured<&MessageSegment::beta>("beta_s_per_byte", "what each byte adds"),
  };
  return fields;
}

const Fields<GroupCurve>& curve_fields() {
  static const Fields<GroupCurve> fields = {
      custom<GroupCurve>("kind", FieldKind::kChoice, "of the message", &read_curve_kind, &write_curve_kind)
          .among(&curve_kinds)
          .required(),
      whole<&GroupCurve::ranks>("ranks", 2, kMostGroupRanks, "of the group that was measured")
          .required("the size of the group that was measured"),
      whole<&GroupCurve::nodes>("nodes", 1, kMostGroupRanks, "that they were on"),
      custom<GroupCurve>("segments", FieldKind::kList, "its time, from 0 bytes on", &read_segments, &write_segments)
          .required("at least one, from 0 bytes on")
          .of<segment_fields>(),
  };
  return fields;
}

const Fields<DeviceLink>& link_fields() {
  static const Fields<DeviceLink> fields = {
      whole<&DeviceLink::one>("one", 0, kMostDevicesPerNode - 1, "a device's place in the node")
          .required("a device's place in the node, from 0"),
      whole<&DeviceLink::other>("other", 0, kMostDevicesPerNode - 1, "the other's")
          .required("the other device's place in the node"),
      whole<&DeviceLink::links>("links", 1, kMostDevicesPerNode, "side by side between them"),
  };
  return fields;
}

const Fields<Cluster>& cluster_fields() {
  static const Fields<Cluster> fields = {
      text<&Cluster::name>("name", "cluster: a catalogue name, N nodes of it")
          .flag("[Nx]NAME")
          .names_object()
          .among(&entries_of<CatalogueKind::kClusters>),
      other("description", FieldKind::kText, "what it is"),
      custom<Cluster>("nodes", FieldKind::kWhole, "nodes", &read_nodes, &write_nodes)
          .flag("N", {"--nodes"})
          .of<node_fields>(),
      whole<&Cluster::devices_per_node>("devices_per_node", 1, kMostDevicesPerNode, "devices in a node").flag("N"),
      part<&Cluster::device, device_fields>("device", "what every node holds"),
      quantity<&Cluster::intra_bandwidth>("intra_bandwidth", Dimension::kBandwidth,
                                          "of one device to its node, per direction")
          .flag("RATE")
          .required(kInlineCluster)
          .above_zero(),
      share<&Cluster::intra_efficiency>("intra_efficiency", 1.0, "share of it that collectives reach").flag("SHARE"),
      quantity<&Cluster::intra_latency>("intra_latency", Dimension::kTime, "of a message inside the node")
          .flag("TIME")
          .required(kInlineCluster),
      boolean<&Cluster::in_switch_reduction>("in_switch_reduction", "the switch can add up, where the GPU can use it"),
      boolean<&Cluster::network_reduction>("network_reduction",
                                           "the network's switches add up (SHARP): all-reduces by CollNet"),
      whole<&Cluster::nics_per_node>("nics_per_node", 1, kMostDevicesPerNode, "network cards in a node").flag("N"),
      quantity<&Cluster::nic_bandwidth>("nic_bandwidth", Dimension::kBandwidth, "of one card, per direction")
          .flag("RATE")
          .required(kInlineCluster)
          .above_zero(),
      share<&Cluster::nic_efficiency>("nic_efficiency", 1.0, "share of it that collectives reach").flag("SHARE"),
      quantity<&Cluster::inter_latency>("inter_latency", Dimension::kTime, "of a message between nodes")
          .flag("TIME")
          .required(kInlineCluster),
      quantity<&Cluster::hop_latency>("hop_latency", Dimension::kTime,
                                      "what the network adds to each step of a collective from node to node")
          .flag("TIME"),
      parts<&Cluster::links, link_fields>("links", "between devices of a node without a switch"),
      quantity<&Cluster::host_bandwidth>("host_bandwidth", Dimension::kBandwidth,
                                         "of one device to its host, per direction")
          .flag("RATE")
          .zero_is_none(),
      quantity<&Cluster::host_memory_bandwidth>("host_memory_bandwidth", Dimension::kBandwidth,
                                                "of a node's host memory")
          .flag("RATE")
          .zero_is_none(),
      parts<&Cluster::curves, curve_fields>("curves", "measured messages, in place of the links' figures"),
      part<&Cluster::network, network_fields>("network", "what joins the nodes, where groups share links"),
  };
  return fields;
}

}  // namespace flopcast
