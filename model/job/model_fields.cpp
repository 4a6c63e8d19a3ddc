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
constexpr std::string_view kInlineDevice = "required for an inline device";
constexpr std::string_view kInlineCluster = "required for an inline cluster";
constexpr std::string_view kLatent = "required for latent attention";
constexpr std::string_view kOfItsGeneration = "the generation's default";

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
  if (!peaks) reader.fail_missing(field.key, R"(for example {"bf16": "312TFLOP/s"})");
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

// Reads a count; a list of nodes that differ is read by the cluster's reader.
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
      one.fail("from_bytes", fmt::format("{} is not above the previous segment's", segment.from.value()),
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
      whole<&Experts::count>("count", 1, kMostExperts, "routed experts per layer")
          .flag("N", {"--num-experts"})
          .required("give the number of routed experts per layer"),
      whole<&Experts::top_k>("top_k", 1, kMostExperts, "experts per token")
          .flag("N", {"--moe-router-topk"})
          .required("give the number of experts per token"),
      whole<&Experts::ffn>("ffn", 1, kLargestWidth, "MLP width of an expert")
          .flag("N", {"--moe-ffn-hidden-size"})
          .required("give the MLP width of an expert"),
      whole<&Experts::shared>("shared", 0, kMostExperts, "shared experts, which process every token").flag("N"),
      whole<&Experts::shared_ffn>("shared_ffn", 0, kLargestWidth, "MLP width of a shared expert")
          .flag("N")
          .otherwise("as routed experts"),
      whole<&Experts::first_dense_layers>("first_dense_layers", 0, kLargestLayers,
                                          "dense layers before the first layer with experts")
          .flag("N"),
      share<&Experts::capacity_factor>("capacity_factor", 1000.0,
                                       "capacity of an expert relative to an equal share, padded (default: unlimited)")
          .flag("C", {"--moe-expert-capacity-factor"}),
      whole<&Experts::every>("every", 1, kLargestLayers, "experts in every N-th layer").flag("N"),
      whole<&Experts::groups>("groups", 0, kMostExperts,
                              "groups of experts from which the router chooses first; 0 or 1: none")
          .flag("N", {"--moe-router-num-groups"}),
      whole<&Experts::group_top_k>("group_top_k", 0, kMostExperts, "number of these groups chosen per token")
          .flag("N", {"--moe-router-group-topk"}),
      amount<&Experts::imbalance>("imbalance", "standard deviation of the rows per expert, relative to their mean")
          .flag("C"),
      boolean<&Experts::router_bias>("router_bias", "trained bias added to the router's scores").flag(""),
  };
  return fields;
}

const Fields<LatentAttention>& latent_fields() {
  static const Fields<LatentAttention> fields = {
      whole<&LatentAttention::query_rank>("q_lora_rank", 0, kLargestWidth, "width of the query latent; 0: none")
          .flag("N", {"--q-lora-rank"}),
      whole<&LatentAttention::key_value_rank>("kv_lora_rank", 1, kLargestWidth, "width of the key-value latent")
          .flag("N", {"--kv-lora-rank"})
          .required(kLatent),
      whole<&LatentAttention::nope_dim>("qk_nope_head_dim", 1, kLargestWidth,
                                        "width of the unrotated part of a query or key head")
          .flag("N", {"--qk-head-dim"})
          .required(kLatent),
      whole<&LatentAttention::rope_dim>("qk_rope_head_dim", 1, kLargestWidth,
                                        "width of the rotated part of a query or key head")
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
      text<&Transformer::name>("name", "model: a catalogue name or the path of a layer profile")
          .flag("NAME")
          .names_object()
          .among(&entries_of<CatalogueKind::kModels>),
      other("description", FieldKind::kText, "description of the model"),
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
                                           "sequence length the model was designed for")
          .flag("N")
          .required(kInlineModel),
      boolean<&Transformer::gated_mlp>("gated_mlp", "three MLP matrices (SwiGLU)").flag("", {"--swiglu"}),
      boolean<&Transformer::biases>("biases", "biases in linear layers").flag("").otherwise("true with norm layernorm"),
      boolean<&Transformer::attention_bias>("attention_bias", "biases only on queries, keys and values")
          .flag("", {"--add-qkv-bias"})
          .otherwise("as biases"),
      boolean<&Transformer::qk_norm>("qk_norm", "normalise each query and key head").flag("", {"--qk-layernorm"}),
      boolean<&Transformer::whole_qk_norm>("whole_qk_norm", "qk_norm spans all heads together").flag(""),
      boolean<&Transformer::attention_sinks>("attention_sinks",
                                             "one trained score per head without a value (attention sink)")
          .flag(""),
      boolean<&Transformer::causal>("causal", "causal attention; false: every token attends to all others").flag(""),
      boolean<&Transformer::embedding_norm>("embedding_norm", "norm after the embedding").flag(""),
      boolean<&Transformer::post_norms>("post_norms", "additional norms after attention and MLP").flag(""),
      choice<&Transformer::block>("block", "attention and MLP one after the other, or in parallel").flag("FORM"),
      whole<&Transformer::sliding_window>("sliding_window", 0, kLargestWidth,
                                          "number of last tokens that attention sees; 0: all")
          .flag("N"),
      whole<&Transformer::attention_chunk>("attention_chunk", 0, kLargestWidth,
                                           "attention within chunks of N tokens; 0: none")
          .flag("N"),
      whole<&Transformer::windowed_layers>("windowed_layers", 0, kLargestLayers, "layers with a window or chunks")
          .flag("N")
          .otherwise("all, if there is a window or chunk size"),
      part<&Transformer::experts, experts_fields>("experts", "mixture of experts that replaces the MLP"),
      part<&Transformer::latent, latent_fields>("mla", "multi-head latent attention"),
      whole<&Transformer::mtp_layers>("mtp_layers", 0, kMostMtpModules, "multi-token prediction modules")
          .flag("N", {"--mtp-num-layers"}),
      boolean<&Transformer::dropout>("dropout", "dropout, including its stored masks")
          .flag("")
          .otherwise("true with norm layernorm"),
      choice<&Transformer::norm>("norm", "layernorm or rmsnorm").flag("NORM"),
      choice<&Transformer::positions>("positions", "learned, rotary, alibi or none").flag("KIND"),
      boolean<&Transformer::tied_embeddings>("tied_embeddings", "the head shares the embedding's table").flag(""),
  };
  return fields;
}

const Fields<ProfiledLayer>& profiled_layer_fields() {
  static const Fields<ProfiledLayer> fields = {
      text<&ProfiledLayer::name>("name", "layer name shown in messages and tables"),
      amount<&ProfiledLayer::forward>("forward_s", "forward time of one microbatch")
          .required("give the forward time of one microbatch in seconds"),
      other("backward_s", FieldKind::kNumber, "backward time, if its two parts are not given"),
      amount<&ProfiledLayer::input_gradient>("input_gradient_s", "time of the input gradient"),
      amount<&ProfiledLayer::weight_gradient>("weight_gradient_s", "time of the weight gradient"),
      amount<&ProfiledLayer::activation>("activation_bytes",
                                         "activation bytes kept from the forward to the backward pass"),
      amount<&ProfiledLayer::output>("output_bytes", "bytes sent to the next stage after this layer"),
      other("parameter_bytes", FieldKind::kNumber, "bytes of its weights, in the profile's precision"),
  };
  return fields;
}

const Fields<LayerProfile>& layer_profile_fields() {
  static const Fields<LayerProfile> fields = {
      other("name", FieldKind::kText, "name of the model"),
      whole<&LayerProfile::micro_batch_size>("micro_batch_size", 1, kMostProfiledSamples,
                                             "samples per microbatch in a layer profile's measurement")
          .flag("N"),
      text<&LayerProfile::measured_on>("measured_on", "device and software of a layer profile, as text"),
      choice<&LayerProfile::precision>("precision", "number format in which a layer profile was measured"),
      whole<&LayerProfile::sequence_length>("sequence_length", 1, kLongestProfiledSample, "tokens per sample"),
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
  constexpr double kLargestShare = 1e6;  // operands in a cache stream faster than from memory
  static const Fields<GemmKernel> fields = {
      whole<&GemmKernel::tile>("tile", 0, kLargestTile,
                               "side of its square tile; 0: the best of a GPU library's tiles"),
      whole<&GemmKernel::overhead_depth>("overhead_depth", 0, kDeepest,
                                         "equivalent steps of k for filling and draining a tile's pipeline"),
      whole<&GemmKernel::weight_gradient_depth>("weight_gradient_depth", 0, kDeepest,
                                                "overhead_depth of weight gradients")
          .otherwise("overhead_depth if given, else 60"),
      share<&GemmKernel::memory_efficiency>("memory_efficiency", kLargestShare,
                                            "fraction of the memory bandwidth that operand streams reach"),
      boolean<&GemmKernel::overlapped>("overlapped", "operands stream during multiplication"),
      share<&GemmKernel::wave_share>("wave_share", 1.0,
                                     "cost of the empty places in the last wave of tiles, relative to full ones"),
  };
  return fields;
}

const Fields<Device>& device_fields() {
  static const Fields<Device> fields = {
      text<&Device::name>("name", "device: a catalogue name")
          .flag("NAME")
          .names_object()
          .among(&entries_of<CatalogueKind::kDevices>),
      other("description", FieldKind::kText, "description of the device"),
      choice<&Device::generation>("generation", "generation of the GPU, or cpu").required(),
      custom<Device>("peak", FieldKind::kObject, "dense GEMM rate by precision", &read_peaks, &write_peaks)
          .required(R"(for example {"bf16": "312TFLOP/s"})")
          .among(&precision_choices),
      quantity<&Device::memory_capacity>("memory_capacity", Dimension::kBytes, "size of the device's memory")
          .required(kInlineDevice)
          .above_zero(),
      quantity<&Device::memory_bandwidth>("memory_bandwidth", Dimension::kBandwidth, "bandwidth of the device's memory")
          .required(kInlineDevice)
          .above_zero(),
      whole<&Device::multiprocessors>("multiprocessors", 1, kMostMultiprocessors, "number of streaming multiprocessors")
          .required(kInlineDevice),
      share<&Device::gemm_efficiency>("gemm_efficiency", 1.0,
                                      "fraction of the peak that GEMMs reach in a training step")
          .otherwise("kernel_efficiency · sustained_share, or the generation's default"),
      share<&Device::memory_efficiency>("memory_efficiency", 1.0, "fraction of the memory bandwidth that kernels reach")
          .otherwise(kOfItsGeneration),
      share<&Device::adam_efficiency>("adam_efficiency", 1.0,
                                      "fraction of the memory bandwidth that Adam's update reaches")
          .otherwise("memory_efficiency")
          .zero_is_none(),
      share<&Device::flash_forward_efficiency>("flash_forward_efficiency", 1.0,
                                               "fraction of the peak that fused attention reaches")
          .otherwise(kOfItsGeneration),
      share<&Device::flash_backward_efficiency>("flash_backward_efficiency", 1.0,
                                                "fraction of the peak that fused attention's backward pass reaches")
          .otherwise(kOfItsGeneration),
      quantity<&Device::kernel_launch>("kernel_launch", Dimension::kTime, "gap between two kernels on a busy stream")
          .otherwise(kOfItsGeneration)
          .above_zero(),
      custom<Device>("gemm_efficiency_by_precision", FieldKind::kObject, "gemm_efficiency of precisions that differ",
                     nullptr, &write_efficiencies)
          .among(&precision_choices),
      quantity<&Device::tdp_w>("tdp", Dimension::kPower, "thermal design power").zero_is_none(),
      quantity<&Device::power_limit_w>("power_limit", Dimension::kPower, "power limit below the TDP; slows GEMMs down")
          .zero_is_none(),
      quantity<&Device::boost_clock_hz>("boost_clock", Dimension::kFrequency, "clock for which the peaks are stated")
          .zero_is_none(),
      quantity<&Device::clock_hz>("clock", Dimension::kFrequency, "clock locked below boost_clock; slows GEMMs down")
          .zero_is_none(),
      other("kernel_efficiency", FieldKind::kNumber, "fraction of the peak that isolated GEMMs reach").up_to(1.0),
      other("sustained_share", FieldKind::kNumber, "fraction of that rate that a training step sustains").up_to(1.0),
      other("kernel_efficiency_by_precision", FieldKind::kObject, "kernel_efficiency of precisions that differ")
          .among(&precision_choices),
      part<&Device::gemm_kernel, gemm_kernel_fields>("gemm_kernel", "behaviour of its matrix library"),
  };
  return fields;
}

const Fields<ClusterNode>& node_fields() {
  static const Fields<ClusterNode> fields = {
      whole<&ClusterNode::devices>("devices", 1, kMostDevicesPerNode, "devices in the node"),
      other("device", FieldKind::kObject, "device of this node, if not the cluster's").of<device_fields>(),
  };
  return fields;
}

const Fields<MessageSegment>& segment_fields() {
  static const Fields<MessageSegment> fields = {
      measured<&MessageSegment::from>("from_bytes", "smallest message of the segment"),
      measured<&MessageSegment::alpha>("alpha_s", "time at zero bytes"),
      measured<&MessageSegment::beta>("beta_s_per_byte", "additional time per byte"),
  };
  return fields;
}

const Fields<GroupCurve>& curve_fields() {
  static const Fields<GroupCurve> fields = {
      custom<GroupCurve>("kind", FieldKind::kChoice, "kind of message", &read_curve_kind, &write_curve_kind)
          .among(&curve_kinds)
          .required(),
      whole<&GroupCurve::ranks>("ranks", 2, kMostGroupRanks, "ranks of the measured group")
          .required("give the size of the measured group"),
      whole<&GroupCurve::nodes>("nodes", 1, kMostGroupRanks, "nodes of the measured group"),
      custom<GroupCurve>("segments", FieldKind::kList, "message times, starting at 0 bytes", &read_segments,
                         &write_segments)
          .required("give at least one segment, the first from 0 bytes")
          .of<segment_fields>(),
  };
  return fields;
}

const Fields<DeviceLink>& link_fields() {
  static const Fields<DeviceLink> fields = {
      whole<&DeviceLink::one>("one", 0, kMostDevicesPerNode - 1, "index of a device in the node")
          .required("give the index of a device in the node, from 0"),
      whole<&DeviceLink::other>("other", 0, kMostDevicesPerNode - 1, "index of the other device")
          .required("give the index of the other device in the node"),
      whole<&DeviceLink::links>("links", 1, kMostDevicesPerNode, "parallel links between them"),
  };
  return fields;
}

const Fields<Cluster>& cluster_fields() {
  static const Fields<Cluster> fields = {
      text<&Cluster::name>("name", "cluster: a catalogue name, optionally with a number of nodes")
          .flag("[Nx]NAME")
          .names_object()
          .among(&entries_of<CatalogueKind::kClusters>),
      other("description", FieldKind::kText, "description of the cluster"),
      custom<Cluster>("nodes", FieldKind::kWhole, "number of nodes, or a list of them", &read_nodes, &write_nodes)
          .flag("N", {"--nodes"})
          .of<node_fields>(),
      whole<&Cluster::devices_per_node>("devices_per_node", 1, kMostDevicesPerNode, "devices per node").flag("N"),
      part<&Cluster::device, device_fields>("device", "device in every node"),
      quantity<&Cluster::intra_bandwidth>("intra_bandwidth", Dimension::kBandwidth,
                                          "bandwidth of one device to the others of its node, per direction")
          .flag("RATE")
          .required(kInlineCluster)
          .above_zero(),
      share<&Cluster::intra_efficiency>("intra_efficiency", 1.0, "fraction of intra_bandwidth that collectives reach")
          .flag("SHARE"),
      quantity<&Cluster::intra_latency>("intra_latency", Dimension::kTime, "latency of a message inside the node")
          .flag("TIME")
          .required(kInlineCluster),
      boolean<&Cluster::in_switch_reduction>("in_switch_reduction",
                                             "the node's switch can reduce, if the GPU supports it"),
      boolean<&Cluster::network_reduction>("network_reduction",
                                           "the network's switches reduce (SHARP): all-reduces use CollNet"),
      whole<&Cluster::nics_per_node>("nics_per_node", 1, kMostDevicesPerNode, "network cards per node").flag("N"),
      quantity<&Cluster::nic_bandwidth>("nic_bandwidth", Dimension::kBandwidth,
                                        "bandwidth of one network card, per direction")
          .flag("RATE")
          .required(kInlineCluster)
          .above_zero(),
      share<&Cluster::nic_efficiency>("nic_efficiency", 1.0, "fraction of nic_bandwidth that collectives reach")
          .flag("SHARE"),
      quantity<&Cluster::inter_latency>("inter_latency", Dimension::kTime, "latency of a message between nodes")
          .flag("TIME")
          .required(kInlineCluster),
      quantity<&Cluster::hop_latency>("hop_latency", Dimension::kTime,
                                      "latency the network adds to each step of a collective between nodes")
          .flag("TIME"),
      parts<&Cluster::links, link_fields>("links", "direct links between the devices of a node without a switch"),
      quantity<&Cluster::host_bandwidth>("host_bandwidth", Dimension::kBandwidth,
                                         "bandwidth of one device to its host, per direction")
          .flag("RATE")
          .zero_is_none(),
      share<&Cluster::host_speed>("host_speed", 10.0, "single-thread speed of the hosts relative to those of DGX H100")
          .flag("SPEED"),
      quantity<&Cluster::host_memory_bandwidth>("host_memory_bandwidth", Dimension::kBandwidth,
                                                "bandwidth of a node's host memory")
          .flag("RATE")
          .zero_is_none(),
      parts<&Cluster::curves, curve_fields>("curves", "measured message times, which replace the links' figures"),
      part<&Cluster::network, network_fields>("network", "network between the nodes, if groups share links"),
  };
  return fields;
}

}  // namespace flopcast
