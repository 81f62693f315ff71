#include "bench/harness/machine.hpp"
#include "bench/harness/options.hpp"
#include "bench/harness/progress.hpp"
#include "bench/harness/report.hpp"
#include "bench/harness/runner.hpp"
#include "bench/micro/programs.hpp"
#include "bench/side_by_side/programs.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sallyport::bench {
namespace {

constexpr int bad_usage = 64;

std::vector<program> all_programs() {
  std::vector<program> all;
  for (auto&& some :
       {handoff_programs(), many_leases_programs(), uncontended_programs(), asking_programs(),
        local_store_programs(), command_programs(), redis_alone_programs(),
        redis_contended_programs(), redis_peers_programs(), redlock_programs(), mariadb_programs(),
        memcached_programs(), postgres_programs(), zookeeper_programs()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
#ifdef SALLYPORT_BENCH_ETCD
  for (auto&& each : etcd_programs()) all.push_back(std::move(each));
#endif
  return all;
}

void list(const std::vector<program>& programs) {
  for (const program& each : programs) {
    std::printf("%-28s %s: %s\n", each.id.c_str(), each.group.c_str(), each.title.c_str());
  }
}

std::string joined(const std::vector<std::string_view>& arguments) {
  std::string text = "bench";
  for (const auto each : arguments) text += " " + std::string(each);
  return text;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file{path, std::ios::trunc};
  file << text << std::flush;
  if (!file) throw std::runtime_error("'" + path + "' could not be written");
}

report measure(std::vector<program> programs, const options& how, std::string command) {
  report whole;
  whole.missing = take_out_missing(programs);
  whole.machine = read_machine_facts();
  const load_watch load;
  const auto began = std::chrono::steady_clock::now();
  {
    progress told;
    whole.rows = make_rows(programs, run_all(programs, how, told));
  }
  whole.load = load.read();
  whole.run = {.command = std::move(command),
               .rounds = how.rounds,
               .time = how.time,
               .hold = how.hold,
               .took = std::chrono::steady_clock::now() - began};
  return whole;
}

int run(const std::vector<std::string_view>& arguments) {
  if (arguments.size() == 3 && arguments[0] == many_leases_child_flag) {
    return run_many_leases_child(arguments[1], std::atof(std::string(arguments[2]).c_str()));
  }
  if (arguments.size() == 5 && arguments[0] == turns_child_flag) {
    const auto number = [&](std::size_t which) { return std::stoi(std::string(arguments[which])); };
    return run_turns_child(std::string(arguments[1]), number(2), number(3),
                           std::chrono::microseconds{number(4)});
  }
  const options how = parse_options(arguments);
  if (how.help) {
    std::cout << usage();
    return 0;
  }
  const auto programs = select(all_programs(), how.only);
  if (programs.empty()) throw usage_error("no program's id or group contains '" + how.only + "'");
  if (how.list) {
    list(programs);
    return 0;
  }
  const report whole = measure(programs, how, joined(arguments));
  if (how.json_path == "-") {
    std::cout << to_json(whole);
    return 0;
  }
  std::cout << to_table(whole) << std::flush;
  if (!how.json_path.empty()) write_file(how.json_path, to_json(whole));
  return 0;
}

}  // namespace
}  // namespace sallyport::bench

int main(int argc, char** argv) {
  try {
    return sallyport::bench::run({argv + 1, argv + argc});
  } catch (const sallyport::bench::usage_error& wrong) {
    std::cerr << "bench: " << wrong.what() << "\n\n" << sallyport::bench::usage();
    return sallyport::bench::bad_usage;
  } catch (const std::exception& failure) {
    std::cerr << "bench: " << failure.what() << "\n";
    return 1;
  }
}
