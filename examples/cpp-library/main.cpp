// A C++ program forecasts a job, replaces a cost function, and reads the error for an invalid job.
#include <flopcast/flopcast.hpp>

#include <iostream>

int main(int argc, char** argv) {
  flopcast::JobInput job;
  if (argc > 1) {
    job.files = {argv[1]};
  } else {
    job.keys = {{"model", "gpt3-175b"}, {"cluster", "8xdgx-a100-80g"}, {"tp", "8"}, {"pp", "8"}, {"gbs", "64"}};
  }
  try {
    const flopcast::SimulatedStep step = flopcast::simulate(job);
    std::cout << step.json() << "\n";

    flopcast::OwnLaws laws;
    laws.network_time = [](const std::string&, double, int, int, double) { return 0.0; };
    std::cerr << step.time_s() << " s a step, " << flopcast::simulate(job, laws).time_s() << " s with a free network\n";
  } catch (const flopcast::ConfigError& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }

  job.keys.emplace_back("tp", "7");
  try {
    flopcast::simulate(job);
  } catch (const flopcast::ConfigError& error) {
    std::cerr << error.diagnostic().field << ": " << error.diagnostic().help << "\n";
    return 0;
  }
  return 1;
}
