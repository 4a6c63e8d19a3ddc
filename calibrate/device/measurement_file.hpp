#pragma once

#include <string>

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// Writes beside the target and renames, so that a killed run or a full disk leaves the old file or the new one, never
/// half of one. Throws EnvironmentError.
void replace_file(const std::string& path, const std::string& text);

/// A measurement that grows on disk: every sample is there as soon as `append` returns. A file that exists already is
/// continued, so that a run which was stopped goes on where it was.
class MeasurementFile {
 public:
  /// `about` tells device, host, date and libraries. An existing file of another device is refused (ConfigError): two
  /// devices do not mix. An empty path keeps everything in memory alone.
  MeasurementFile(std::string path, const Measurement& about);

  bool has(const SampleKey& key) const { return measurement_.has(key); }
  /// Throws InternalError when the sample is known already, EnvironmentError when it cannot be written.
  void append(const Sample& sample);
  /// Forgets all samples; the file keeps them until the next one is appended.
  void begin_anew() { measurement_ = about_; }
  const Measurement& measurement() const { return measurement_; }

 private:
  std::string path_;
  Measurement about_;
  Measurement measurement_;
};

}  // namespace flopcast
