// The Python module flopcast._core: the library's functions, with the GIL released during computation, and its errors
// as exceptions. The public interface is python/flopcast.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/flopcast.hpp"

namespace py = pybind11;

namespace flopcast {
namespace {

using Keys = std::vector<std::pair<std::string, std::string>>;

// A column of results. numpy, pandas and memoryview access its memory without a copy.
template <class Value>
struct ResultColumn {
  std::vector<Value> values;
};

template <class Value>
void bind_column(py::module_& module, const char* name) {
  using Column = ResultColumn<Value>;
  py::class_<Column>(module, name, py::buffer_protocol())
      .def_buffer([](Column& column) {
        return py::buffer_info(column.values.data(), static_cast<py::ssize_t>(column.values.size()), true);
      })
      .def("__len__", [](const Column& column) { return column.values.size(); })
      .def("__getitem__", [](const Column& column, py::ssize_t index) {
        const auto size = static_cast<py::ssize_t>(column.values.size());
        if (index < 0) index += size;
        if (index < 0 || index >= size) throw py::index_error("column index out of range");
        return column.values[static_cast<std::size_t>(index)];
      });
}

template <class From>
void append_as(const py::buffer_info& info, const std::string& name, std::vector<std::int32_t>& numbers) {
  const auto* const bytes = static_cast<const char*>(info.ptr);
  for (py::ssize_t index = 0; index < info.size; ++index) {
    From value{};
    std::memcpy(&value, bytes + index * info.strides[0], sizeof value);
    const auto number = static_cast<std::int32_t>(value);  // NOLINT(bugprone-signed-char-misuse): no character
    if (static_cast<From>(number) != value)
      throw ConfigError({name, "contains a number that is out of range", "", "give 32-bit whole numbers"});
    numbers.push_back(number);
  }
}

// Whole numbers from any buffer: numpy arrays of any integer type, array.array, memoryview.
std::vector<std::int32_t> whole_numbers(const std::string& name, const py::buffer& buffer) {
  const py::buffer_info info = buffer.request();
  if (info.ndim != 1) throw ConfigError({name, "is not a column", "", "give a one-dimensional array"});
  std::vector<std::int32_t> numbers;
  numbers.reserve(static_cast<std::size_t>(info.size));
  const char kind = info.format.empty() ? '?' : info.format.back();
  const bool is_signed = std::strchr("bhilq", kind) != nullptr;
  const bool is_unsigned = std::strchr("BHILQ?", kind) != nullptr;
  switch ((is_signed ? 0 : is_unsigned ? 16 : 32) + static_cast<int>(info.itemsize)) {
    case 1:
      append_as<std::int8_t>(info, name, numbers);
      break;
    case 2:
      append_as<std::int16_t>(info, name, numbers);
      break;
    case 4:
      append_as<std::int32_t>(info, name, numbers);
      break;
    case 8:
      append_as<std::int64_t>(info, name, numbers);
      break;
    case 17:
      append_as<std::uint8_t>(info, name, numbers);
      break;
    case 18:
      append_as<std::uint16_t>(info, name, numbers);
      break;
    case 20:
      append_as<std::uint32_t>(info, name, numbers);
      break;
    case 24:
      append_as<std::uint64_t>(info, name, numbers);
      break;
    default:
      throw ConfigError({name, "does not contain whole numbers", "", "give an array of integers"});
  }
  return numbers;
}

// Raises an exception of python/flopcast/errors.py with the parts of the diagnostic.
void raise_as(const char* type, const Diagnostic& diagnostic, const std::string& text) {
  const py::object errors = py::module_::import("flopcast.errors");
  const py::object error =
      errors.attr(type)(text, diagnostic.field, diagnostic.problem, diagnostic.where, diagnostic.help);
  PyErr_SetObject(errors.attr(type).ptr(), error.ptr());
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(std::move(thrown));
  } catch (const ConfigError& error) {
    raise_as("ConfigError", error.diagnostic(), error.what());
  } catch (const NegativeAnswer& error) {
    raise_as("NegativeAnswer", {"", error.what(), "", ""}, error.what());
  } catch (const EnvironmentError& error) {
    raise_as("EnvironmentFailure", {"", error.what(), "", ""}, error.what());
  } catch (const InternalError& error) {
    raise_as("InternalError", {"", error.what(), "", ""}, error.what());
  }
}

JobInput input_of(std::string text, std::vector<std::string> files, Keys keys) {
  return {std::move(text), std::move(files), std::move(keys)};
}

// Text, notes, and the reason for a negative answer.
template <class Ask>
std::tuple<std::string, std::string, std::string> printed_answer(const Ask& ask) {
  std::string printed;
  try {
    CommandAnswer answer;
    {
      const py::gil_scoped_release release;
      answer = ask(&printed);
    }
    return {answer.text, answer.notes, ""};
  } catch (const NegativeAnswer& negative) {
    // Text printed before a negative answer is part of the answer.
    if (printed.empty()) throw;
    return {printed, "", negative.what()};
  }
}

OwnLaws laws_of(const py::dict& functions) {
  OwnLaws laws;
  if (functions.contains("schedule")) laws.schedule = functions["schedule"].cast<decltype(laws.schedule)>();
  if (functions.contains("operator_time"))
    laws.operator_time = functions["operator_time"].cast<decltype(laws.operator_time)>();
  if (functions.contains("network_time"))
    laws.network_time = functions["network_time"].cast<decltype(laws.network_time)>();
  return laws;
}

void bind_steps(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> released;
  py::class_<SimulatedStep>(module, "SimulatedStep")
      .def_property_readonly("time_s", &SimulatedStep::time_s)
      .def_property_readonly("mfu", &SimulatedStep::mfu)
      .def_property_readonly("bubble_fraction", &SimulatedStep::bubble_fraction)
      .def_property_readonly("peak_memory_gib", &SimulatedStep::peak_memory_gib)
      .def_property_readonly("fits", &SimulatedStep::fits)
      .def_property_readonly("warnings", &SimulatedStep::warnings)
      .def("json", &SimulatedStep::json, released)
      .def("memory_json", &SimulatedStep::memory_json, released, py::arg("view") = "peak")
      .def("timeline_json", &SimulatedStep::timeline_json, released)
      .def("timeline_svg", &SimulatedStep::timeline_svg, released)
      .def("chrome_trace", &SimulatedStep::chrome_trace, released)
      .def("html", &SimulatedStep::html, released)
      .def("tables", &SimulatedStep::tables, released, py::arg("format") = "table")
      .def("job_json", &SimulatedStep::job_json, released)
      .def_property_readonly("devices", &SimulatedStep::devices)
      .def(
          "chakra_trace", [](const SimulatedStep& step, int rank) { return py::bytes(step.chakra_trace(rank)); },
          py::arg("rank"))
      .def("chakra_groups", &SimulatedStep::chakra_groups, released)
      .def("chakra_network", &SimulatedStep::chakra_network, released);
  module.def(
      "simulate",
      [](std::string text, std::vector<std::string> files, Keys keys, const py::dict& functions) {
        const JobInput input = input_of(std::move(text), std::move(files), std::move(keys));
        const OwnLaws laws = laws_of(functions);
        const py::gil_scoped_release release;
        return simulate(input, laws);
      },
      py::arg("text"), py::arg("files"), py::arg("keys"), py::arg("laws") = py::dict());
}

void bind_prices(py::module_& module) {
  bind_column<double>(module, "FloatColumn");
  bind_column<std::uint8_t>(module, "ByteColumn");
  bind_column<std::uint16_t>(module, "ShortColumn");
  bind_column<std::int32_t>(module, "IntColumn");
  module.def(
      "price_layouts",
      [](std::string text, std::vector<std::string> files, Keys keys, const py::dict& columns,
         std::vector<std::string> schedules, bool simulated, int threads) {
        const JobInput input = input_of(std::move(text), std::move(files), std::move(keys));
        LayoutColumns layouts;
        layouts.schedules = std::move(schedules);
        if (columns.empty()) layouts.rows = 1;  // the job's own layout
        for (const auto& [key, values] : columns) {
          const auto name = key.cast<std::string>();
          std::vector<std::int32_t>& numbers = layouts.values[name];
          numbers = whole_numbers(name, values.cast<py::buffer>());
          layouts.rows = std::max(layouts.rows, numbers.size());
        }
        LayoutPrices prices;
        {
          const py::gil_scoped_release release;
          prices = price_layouts(input, layouts, simulated ? PriceKind::kSimulated : PriceKind::kBound, threads);
        }
        py::dict answer;
        answer["time_s"] = ResultColumn<double>{std::move(prices.time_s)};
        answer["memory_gib"] = ResultColumn<double>{std::move(prices.memory_gib)};
        answer["fits"] = ResultColumn<std::uint8_t>{std::move(prices.fits)};
        answer["reason"] = ResultColumn<std::uint16_t>{std::move(prices.reason)};
        return std::pair(answer, prices.reasons);
      },
      py::arg("text"), py::arg("files"), py::arg("keys"), py::arg("columns"), py::arg("schedules"),
      py::arg("simulated"), py::arg("threads"));
  module.def(
      "layouts",
      [](std::string text, std::vector<std::string> files, Keys keys) {
        const JobInput input = input_of(std::move(text), std::move(files), std::move(keys));
        LayoutColumns layouts;
        {
          const py::gil_scoped_release release;
          layouts = enumerate_layouts_of(input);
        }
        py::dict columns;
        for (auto& [name, values] : layouts.values)
          columns[py::str(name)] = ResultColumn<std::int32_t>{std::move(values)};
        return std::pair(columns, layouts.schedules);
      },
      py::arg("text"), py::arg("files"), py::arg("keys"));
  py::class_<LayoutPricer::Price>(module, "Price")
      .def_readonly("time_s", &LayoutPricer::Price::time_s)
      .def_readonly("memory_gib", &LayoutPricer::Price::memory_gib)
      .def_readonly("fits", &LayoutPricer::Price::fits);
  // Holds the GIL: a call takes microseconds, and a pricer is not thread-safe.
  py::class_<LayoutPricer>(module, "LayoutPricer")
      .def(py::init([](std::string text, std::vector<std::string> files, Keys keys) {
        return std::make_unique<LayoutPricer>(input_of(std::move(text), std::move(files), std::move(keys)));
      }))
      .def(
          "price",
          [](LayoutPricer& pricer, const py::dict& layout, const std::string& schedule, bool simulated) {
            std::vector<std::pair<std::string, int>> values;
            for (const auto& [key, value] : layout) values.emplace_back(key.cast<std::string>(), value.cast<int>());
            return pricer.price(values, schedule, simulated ? PriceKind::kSimulated : PriceKind::kBound);
          },
          py::arg("layout"), py::arg("schedule") = "", py::arg("simulated") = true);
}

PYBIND11_MODULE(_core, module) {
  module.doc() = "The compiled part of flopcast.";
  module.attr("__version__") = library_version();
  py::register_exception_translator(translate);
  bind_steps(module);
  bind_prices(module);
  module.def(
      "answer_command",
      [](const std::vector<std::string>& arguments, const std::string& input) {
        return printed_answer([&](std::string* printed) { return answer_command(arguments, input, printed); });
      },
      py::arg("arguments"), py::arg("input") = "");
  const auto asked = [](std::string name, std::string text, std::vector<std::string> files, Keys keys,
                        std::vector<std::string> rest) {
    return AskedQuestion{std::move(name), input_of(std::move(text), std::move(files), std::move(keys)),
                         std::move(rest)};
  };
  module.def(
      "answer_question",
      [asked](std::string name, std::string text, std::vector<std::string> files, Keys keys,
              std::vector<std::string> rest, const std::string& format) {
        const AskedQuestion question =
            asked(std::move(name), std::move(text), std::move(files), std::move(keys), std::move(rest));
        return printed_answer([&](std::string* printed) { return answer_question(question, format, printed); });
      },
      py::arg("name"), py::arg("text"), py::arg("files"), py::arg("keys"), py::arg("rest"), py::arg("format"));
  module.def(
      "draw_question",
      [asked](std::string name, std::string text, std::vector<std::string> files, Keys keys) {
        const AskedQuestion question = asked(std::move(name), std::move(text), std::move(files), std::move(keys), {});
        const py::gil_scoped_release release;
        return draw_question(question);
      },
      py::arg("name"), py::arg("text"), py::arg("files"), py::arg("keys"));
  module.def("is_job_key", &is_job_key, py::arg("name"));
}

}  // namespace
}  // namespace flopcast
