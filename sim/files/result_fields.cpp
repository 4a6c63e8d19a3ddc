#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/config/codec.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/terms.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

/// A nonnegative number in a saved result. Readers only check that it is a number.
template <auto Member>
Entry<OwnerOf<Member>> figure(std::string_view key, std::string_view help = "") {
  return number<Member>(key, help).at_least(0.0);
}

template <auto Terms, auto Member>
auto member_of_term(const FieldInfo& field) {
  const auto& terms = Terms();
  return std::find_if(terms.begin(), terms.end(), [&](const auto& term) { return term.key == field.key; })->*Member;
}

/// A number for each of the terms, with its key and explanation; `Member` is the owner's member that holds it.
template <auto Terms, auto Member>
auto term_fields(unsigned needed_by, double smallest) {
  using Owner = typename MemberTraits<ValueOf<Member>>::Owner;
  const auto read = [](ObjectReader& reader, const FieldInfo& field, Owner& owner) {
    double& value = owner.*member_of_term<Terms, Member>(field);
    value = reader.number(field.key).value_or(value);
  };
  const auto write = [](const FieldInfo& field, const Owner& owner) -> OrderedJsonValue {
    return owner.*member_of_term<Terms, Member>(field);
  };
  Fields<Owner> fields;
  for (const auto& term : Terms()) {
    Entry<Owner> entry = custom<Owner>(term.key, FieldKind::kNumber, term.what, read, write);
    fields.push_back(entry.needed_by(needed_by).at_least(smallest));
  }
  return fields;
}

/// Seconds by name, for names that are not known in advance.
template <auto Member>
Entry<OwnerOf<Member>> named_seconds(std::string_view key) {
  using Owner = OwnerOf<Member>;
  const auto write = [](const FieldInfo&, const Owner& owner) -> OrderedJsonValue {
    Json json = Json::object();
    for (const NamedSeconds& part : owner.*Member) json[part.name] = part.seconds;
    return json;
  };
  return custom<Owner>(key, FieldKind::kObject, "", nullptr, write);
}

const Fields<ModelResult>& model_fields_of_result() {
  using M = ModelResult;
  static const Fields<M> table = {
      answer<&M::parameters>("parameters"),
      answer<&M::active_parameters>("active_parameters", "those used by a token"),
  };
  return table;
}

const Fields<IterationResult>& iteration_fields() {
  using I = IterationResult;
  static const Fields<I> table = {
      figure<&I::time_s>("time_s").needed_by(kPage | kComparison),
      figure<&I::tokens_per_s>("tokens_per_s").needed_by(kPage),
      figure<&I::tokens_per_s_per_gpu>("tokens_per_s_per_gpu"),
      figure<&I::samples_per_s>("samples_per_s"),
      figure<&I::model_tflops_per_gpu>("model_tflops_per_gpu"),
      figure<&I::hardware_tflops_per_gpu>("hardware_tflops_per_gpu"),
      figure<&I::mfu>("mfu", "model FLOPs, with full attention, over the device's peak").needed_by(kPage | kComparison),
      figure<&I::mfu_causal>("mfu_causal", "the same with half of the FLOPs of causal attention").later(),
      figure<&I::hfu>("hfu", "recomputed FLOPs included"),
  };
  return table;
}

const Fields<Breakdown>& breakdown_fields() {
  static const Fields<Breakdown> table = [] {
    Fields<Breakdown> fields = term_fields<&breakdown_terms, &StepTerm::spent>(kComparison, kNoSmallest);
    fields[static_cast<std::size_t>(TermId::kOffload)].later = true;
    return fields;
  }();
  return table;
}

const Fields<AxisCommunication>& axis_fields() {
  using A = AxisCommunication;
  static const Fields<A> table = {
      figure<&A::total_s>("total_s", "in progress, hidden or not; mean over pipeline ranks"),
      figure<&A::exposed_s>("exposed_s", "the device waits for it"),
      figure<&A::bytes_sent_per_rank>("bytes_sent_per_rank"), figure<&A::messages>("messages")};
  return table;
}

const Fields<CommunicationResult>& communication_fields() {
  using C = CommunicationResult;
  static const Fields<C> table = [] {
    Fields<C> fields = {figure<&C::fraction>("fraction", "of time_s; above 1 if axes overlap"),
                        figure<&C::exposed_fraction>("exposed_fraction").needed_by(kPage | kComparison)};
    const auto write = [](const FieldInfo& field, const C& communication) -> OrderedJsonValue {
      return write_fields(axis_fields(), communication[*parse<Axis>(field.key)]);
    };
    for (const Axis axis : kResultAxes) {
      fields.push_back(custom<C>(name_of(axis), FieldKind::kObject, "", nullptr, write).of<axis_fields>());
    }
    return fields;
  }();
  return table;
}

const Fields<BubbleResult>& cause_fields() {
  static const Fields<BubbleResult> table = term_fields<&bubble_terms, &StepTerm::waited>(kComparison, 0.0);
  return table;
}

const Fields<BubbleResult>& bubble_fields() {
  using B = BubbleResult;
  static const Fields<B> table = {
      figure<&B::fraction>("fraction", "waiting other than communication, over ranks and time_s")
          .needed_by(kPage | kComparison),
      number<&B::ratio>("ratio", "time_s over the busiest rank's work, minus 1"),
      figure<&B::span_s>("span_s", "the longest time from a rank's first start to its last end"),
      level<cause_fields>("by_cause").needed_by(kComparison),
      answer<&B::per_pipeline_rank>("per_pipeline_rank", "each rank's bubble over time_s")};
  return table;
}

const Fields<RankMemoryResult>& rank_memory_fields() {
  using R = RankMemoryResult;
  static const Fields<R> table = [] {
    Fields<R> fields = term_fields<&memory_terms, &MemoryTerm::gib>(kPage, 0.0);
    fields.insert(
        fields.end(),
        {figure<&R::total_gib>("total_gib").needed_by(kPage),
         figure<&R::reserved_gib>("reserved_gib", "by the framework's allocator").later(),
         figure<&R::shown_gib>("shown_gib", "as in nvidia-smi").later(),
         figure<&R::capacity_gib>("capacity_gib", "of the smallest device among its ranks").later(),
         answer<&R::peak_in_flight>("peak_in_flight", "number of activations, each of one stage and microbatch")});
    return fields;
  }();
  return table;
}

const Fields<StepTimeInterval>& interval_fields() {
  using I = StepTimeInterval;
  static const Fields<I> table = {figure<&I::level>("level"),
                                  figure<&I::half_width>("half_width"),
                                  figure<&I::low_s>("low_s"),
                                  figure<&I::high_s>("high_s"),
                                  figure<&I::stalls_s>("stalls_s"),
                                  figure<&I::factor>("factor").at_least(1.0),
                                  answer<&I::sources>("sources").at_least(1.0),
                                  answer<&I::evidence>("evidence")};
  return table;
}

const Fields<TrainingResult>& training_fields_of_result() {
  using T = TrainingResult;
  static const Fields<T> table = {
      figure<&T::steps>("steps"),
      figure<&T::days>("days"),
      figure<&T::gpu_hours>("gpu_hours"),
      figure<&T::days_low>("days_low").later(),
      figure<&T::days_high>("days_high").later(),
      figure<&T::cost_usd>("cost_usd").later(),
  };
  return table;
}

// Adds the days that correspond to the step time's interval.
OrderedJsonValue write_training(const FieldInfo&, const Result& result) {
  if (!result.training) return nullptr;
  TrainingResult training = *result.training;
  if (result.interval) {
    const double per_second = training.days / result.iteration.time_s;
    training.days_low = per_second * result.interval->low_s;
    training.days_high = per_second * result.interval->high_s;
  }
  return write_fields(training_fields_of_result(), training);
}

const Fields<SteadyResult>& steady_fields() {
  using S = SteadyResult;
  static const Fields<S> table = {
      figure<&S::period_s>("period_s", "from one microbatch to the next"),
      number<&S::fill_s>("fill_s", "paid once, for filling and draining"),
      figure<&S::throughput_samples_per_s>("throughput_samples_per_s"),
      answer<&S::weight_versions>("weight_versions", "by pipeline rank"),
      answer<&S::staleness>("staleness", "updates from a microbatch's weights to those updated by its gradient")};
  return table;
}

const Fields<DistributionResult>& distribution_fields() {
  using D = DistributionResult;
  static const Fields<D> table = {answer<&D::samples>("samples").at_least(1.0),
                                  answer<&D::seed>("seed"),
                                  figure<&D::jitter>("jitter", "Standard deviation of a pass's time over its mean."),
                                  answer<&D::stragglers>("stragglers"),
                                  figure<&D::mean_s>("mean_s"),
                                  figure<&D::std_s>("std_s"),
                                  figure<&D::p5_s>("p5_s"),
                                  figure<&D::p50_s>("p50_s"),
                                  figure<&D::p95_s>("p95_s"),
                                  figure<&D::p99_s>("p99_s"),
                                  number<&D::slowdown>("slowdown", "mean_s over iteration.time_s, minus 1.")};
  return table;
}

const Fields<Quantiles>& quantile_fields() {
  using Q = Quantiles;
  static const Fields<Q> table = {figure<&Q::p5>("p5"), figure<&Q::p50>("p50"), figure<&Q::p95>("p95")};
  return table;
}

const Fields<RunOption>& option_fields() {
  using O = RunOption;
  static const Fields<O> table = {answer<&O::change>("change"), figure<&O::goodput_p50>("goodput_p50"),
                                  figure<&O::days_p50>("days_p50"),
                                  number<&O::days_saved>("days_saved", "Relative to the unchanged run."),
                                  number<&O::saved_usd>("saved_usd").later()};
  return table;
}

const Fields<RunResult>& lost_fields() {
  static const Fields<RunResult> table = {named_seconds<&RunResult::lost_by_cause>("by_cause"),
                                          named_seconds<&RunResult::lost_by_phase>("by_phase")};
  return table;
}

const Fields<RunResult>& run_fields() {
  using R = RunResult;
  static const Fields<R> table = {
      answer<&R::runs>("runs").at_least(1.0),
      answer<&R::seed>("seed"),
      figure<&R::steps>("steps"),
      figure<&R::interruptions_per_day>("interruptions_per_day"),
      figure<&R::checkpoint_interval_s>(
          "checkpoint_interval_s",
          "Training between two checkpoints of the kind that is taken more often; 0: none pays off."),
      figure<&R::storage_interval_s>("storage_interval_s"),
      figure<&R::memory_interval_s>("memory_interval_s",
                                    "Training between two copies in the memory of peers; 0: none."),
      figure<&R::checkpoint_gib>("checkpoint_gib"),
      figure<&R::checkpoint_cost_s>("checkpoint_cost_s", "Time that the run is stopped for each."),
      figure<&R::restore_s>("restore_s", "From the availability of a replacement to the next step, from storage."),
      figure<&R::nodes_in_repair>("nodes_in_repair", "On average."),
      answer<&R::spares_for_95>("spares_for_95", "Nodes; more are in repair for less than 5 % of the time."),
      answer<&R::spares_worth>("spares_worth", "Nodes; one more would cost more than the waits it saves."),
      figure<&R::closed_form_goodput>("closed_form_goodput", "Daly 2006, eq. 20, with all causes combined."),
      own_part<&R::goodput, quantile_fields>("goodput"),
      own_part<&R::ettr, quantile_fields>("ettr"),
      own_part<&R::days, quantile_fields>("days"),
      own_part<&R::cost_usd, quantile_fields>("cost_usd").later(),
      level<lost_fields>("lost_s", "Seconds per run, means over the runs; both parts have the same sum."),
      own_parts<&R::options, option_fields>("options").always()};
  return table;
}

const Fields<HotLink>& hot_link_fields() {
  using H = HotLink;
  static const Fields<H> table = {answer<&H::link>("link", "The first of the equivalent links."),
                                  answer<&H::links>("links", "Number of equivalent links.").at_least(1.0),
                                  figure<&H::utilisation>("utilisation", "While the step waits for messages on it."),
                                  own_part<&H::share, by_axis_fields>("share", "Fractions of the link's traffic.")};
  return table;
}

const Fields<GroupBandwidth>& bandwidth_fields() {
  using G = GroupBandwidth;
  static const Fields<G> table = {answer<&G::axis>("axis"),
                                  answer<&G::collective>("collective"),
                                  answer<&G::ranks>("ranks").at_least(1.0),
                                  figure<&G::bytes>("bytes"),
                                  figure<&G::alone_busbw_gb_per_s>("alone_busbw_gb_per_s"),
                                  figure<&G::busbw_gb_per_s>("busbw_gb_per_s", "All groups at once.")};
  return table;
}

const Fields<PathSamples>& path_fields() {
  using P = PathSamples;
  static const Fields<P> table = {answer<&P::samples>("samples").at_least(1.0),
                                  figure<&P::mean_s>("mean_s"),
                                  figure<&P::p5_s>("p5_s"),
                                  figure<&P::p50_s>("p50_s"),
                                  figure<&P::p95_s>("p95_s"),
                                  figure<&P::least_s>("least_s"),
                                  figure<&P::most_s>("most_s")};
  return table;
}

const Fields<NetworkResult>& network_fields_of_result() {
  using N = NetworkResult;
  static const Fields<N> table = {
      own_part<&N::contention_s, by_axis_fields>(
          "contention_s", "Time that sharing adds to the step, by the axis of the messages it waits for."),
      own_parts<&N::hot_links, hot_link_fields>("hot_links").always(),
      figure<&N::without_sharing_s>("without_sharing_s", "Step time if every group had its links to itself."),
      figure<&N::waiting_s>("waiting_s", "Part of the step spent waiting for messages that others slow down."),
      answer<&N::replica_classes>("replica_classes", "Number of classes of replicas that the links treat alike.")
          .at_least(1.0),
      answer<&N::replica>("replica", "The replica that the timeline shows: one that ends last."),
      own_part<&N::paths, path_fields>("paths", "Step times over seeds of hashed paths (--path-samples).").later(),
      own_parts<&N::nccl_tests, bandwidth_fields>(
          "nccl_tests", "Expected output of nccl-tests with all groups of an axis running at once.")
          .always()};
  return table;
}

const Fields<CriticalPathResult>& critical_path_fields() {
  using C = CriticalPathResult;
  static const Fields<C> table = {figure<&C::total_s>("total_s"), answer<&C::steps>("steps"),
                                  named_seconds<&C::by_kind>("by_kind_s"), figure<&C::transfers_s>("transfers_s"),
                                  figure<&C::waiting_s>("waiting_s")};
  return table;
}

const Fields<MemoryPart>& tensor_fields() {
  using M = MemoryPart;
  static const Fields<M> table = {answer<&M::group>("kind"), answer<&M::name>("tensor"),
                                  answer<[](const M& part) { return gibibytes(part.each); }>("each_gib"),
                                  figure<&M::count>("count"),
                                  answer<[](const M& part) { return gibibytes(part.total()); }>("gib")};
  return table;
}

const Fields<FullestParts>& fullest_rank_fields() {
  static const Fields<FullestParts> table = {answer<&FullestParts::rank>("rank"),
                                             own_parts<&FullestParts::tensors, tensor_fields>("tensors").always()};
  return table;
}

OrderedJsonValue write_over_time(const FieldInfo&, const MemoryFile& file) {
  if (!file.over_time) return nullptr;
  return Json(*file.over_time);
}

// The start of a file's schema (its name and the job that it answers), followed by the fields of its table.
Json file_schema(const char* name, const char* what, const FieldInfos& fields) {
  const Json rest = file_schema_of(fields);
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", name},
                 {"description", what},
                 {"type", "object"},
                 {"required", {"schema", "job"}},
                 {"properties",
                  {{"schema", {{"const", name}}},
                   {"job",
                    {{"type", "object"},
                     {"description", "The resolved job, in the form of a job file."},
                     {"required", {"model", "cluster", "layout", "training"}}}}}}};
  for (const Json& key : rest.at("required")) schema["required"].push_back(key);
  schema["properties"].update(rest.at("properties"));
  return schema;
}

}  // namespace

const Fields<ByAxis<double>>& by_axis_fields() {
  using B = ByAxis<double>;
  static const Fields<B> table = [] {
    Fields<B> fields;
    const auto write = [](const FieldInfo& field, const B& values) -> OrderedJsonValue {
      return values[*parse<Axis>(field.key)];
    };
    for (const Axis axis : kResultAxes) {
      fields.push_back(custom<B>(name_of(axis), FieldKind::kNumber, "", nullptr, write));
    }
    return fields;
  }();
  return table;
}

const Fields<PackingResult>& packing_fields() {
  using P = PackingResult;
  static const Fields<P> table = {
      answer<&P::sequences>("sequences").at_least(1.0),
      figure<&P::filled>("filled"),
      figure<&P::attention>("attention", "Its work relative to that of full sequences."),
      figure<&P::time_s>("time_s"),
      number<&P::idle>("idle"),
      figure<&P::equal_s>("equal_s", "Step time if every microbatch had the mean attention work."),
      number<&P::equal_idle>("equal_idle"),
      figure<&P::tokens_per_s>("tokens_per_s", "Without padding."),
      figure<&P::padded_filled>("padded_filled", "One sequence per row, padded to the sequence length."),
      figure<&P::longest_filled>("longest_filled", "Padded to the longest row of its microbatch."),
      figure<&P::padded_tokens_per_s>("padded_tokens_per_s",
                                      "With rows padded to the sequence length; padding does not count.")};
  return table;
}

const Fields<MemoryResult>& memory_fields() {
  using M = MemoryResult;
  static const Fields<M> table = {
      figure<&M::capacity_gib>("capacity_gib", "of the smallest device").needed_by(kPage),
      figure<&M::peak_gib>("peak_gib").needed_by(kPage | kComparison),
      figure<&M::reserved_gib>("reserved_gib", "by the framework's allocator, its fragmentation included").later(),
      figure<&M::shown_gib>("shown_gib", "as in nvidia-smi: the tensors and the stack's memory beyond them").later(),
      answer<&M::fits>("fits", "true if on every rank all that nvidia-smi shows fits"),
      own_parts<&M::per_pipeline_rank, rank_memory_fields>("per_pipeline_rank")
          .always()
          .at_least(1.0)
          .needed_by(kPage)};
  return table;
}

const Fields<Result>& result_fields() {
  using R = Result;
  static const Fields<R> table = {
      own_part<&R::iteration, iteration_fields>("iteration").needed_by(kPage | kComparison),
      own_part<&R::breakdown, breakdown_fields>(
          "breakdown", "Exposed times, mean over pipeline ranks; they sum to iteration.time_s.")
          .needed_by(kPage | kComparison),
      own_part<&R::communication, communication_fields>("communication").needed_by(kPage | kComparison),
      own_part<&R::bubble, bubble_fields>("bubble").needed_by(kPage | kComparison),
      own_part<&R::memory, memory_fields>("memory").needed_by(kPage | kComparison),
      own_part<&R::model, model_fields_of_result>("model", "Weights of the model, counted exactly.").later(),
      own_part<&R::interval, interval_fields>(
          "step_time_interval",
          "Nine of ten measured steps are expected between low_s and high_s. sources: the number of "
          "published sources behind it; factor: by how much the distance from them widens it.")
          .later(),
      custom<R>("training", FieldKind::kObject, "", nullptr, &write_training).of<training_fields_of_result>().later(),
      own_part<&R::steady, steady_fields>("steady").later(),
      own_part<&R::distribution, distribution_fields>(
          "distribution", "Distribution of the step time if passes vary (--jitter, --straggler).")
          .later(),
      own_part<&R::packing, packing_fields>(
          "packing", "A step whose microbatches hold sequences of different lengths (--sequence-lengths).")
          .later(),
      own_part<&R::run, run_fields>(
          "run",
          "A run of months with interruptions (failures), quantiles over simulated runs. Goodput: the "
          "steps' time alone over the elapsed time. ETTR: time in which training progresses, at "
          "whatever pace, over the elapsed time, which includes waits and restarts.")
          .later(),
      own_part<&R::network, network_fields_of_result>(
          "network", "Effect of links shared between nodes on the step (cluster.network).")
          .later(),
      answer<&R::assumptions>("assumptions"),
      answer<&R::warnings>("warnings"),
      own_part<&R::critical_path, critical_path_fields>(
          "critical_path", "The longest chain of work and transfers of the timeline; its parts sum to total_s.")
          .later()};
  return table;
}

const Fields<MemoryFile>& memory_file_fields() {
  using M = MemoryFile;
  static const Fields<M> table = {
      own_part<&M::memory, memory_fields>("memory"),
      own_part<&M::packing, packing_fields>("packing", "Sequences of different lengths (--sequence-lengths).").later(),
      custom<M>("over_time", FieldKind::kList, "For each pipeline rank: [seconds, GiB] at every change.", nullptr,
                &write_over_time)
          .later(),
      own_part<&M::fullest_rank, fullest_rank_fields>(
          "fullest_rank", "The tensors of the fullest rank at its fullest moment, largest first.")
          .later(),
      answer<&M::assumptions>("assumptions"),
      answer<&M::warnings>("warnings")};
  return table;
}

Json result_schema() {
  return file_schema(kResultName,
                     "A forecast. Times in seconds, memory in GiB (2^30 bytes), fractions between 0 and 1.",
                     infos_of<result_fields>());
}

Json memory_file_schema() {
  Json schema =
      file_schema(kMemoryName, "Memory of each pipeline rank, in GiB (2^30 bytes).", infos_of<memory_file_fields>());
  const Json point = {
      {"type", "array"}, {"minItems", 2}, {"maxItems", 2}, {"items", {{"type", "number"}, {"minimum", 0}}}};
  schema["properties"]["over_time"]["items"] = {{"type", "array"}, {"items", point}};
  return schema;
}

}  // namespace flopcast
