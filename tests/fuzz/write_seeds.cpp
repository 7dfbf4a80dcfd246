// Writes the corpora of tests/fuzz: what the program's own writers give, as small as it goes, and
// hostile inputs of the kinds that readers must refuse.
//
//   write_fuzz_seeds .       from the repository's root
#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "results/packing/run_archive.hpp"
#include "results/record/record.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/suite_record.hpp"
#include "results/sweep/sweep_index.hpp"
#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/comm/control/connection.hpp"
#include "runners/comm/control/control_proof.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/schedule/formats/csv.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "runners/schedule/formats/trace_json.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/simulate/simulator.hpp"
#include "tests/unit/results/sample_run.hpp"
#include "tests/unit/runners/plan/rivals/sailor/small_sailor.hpp"
#include "workloads/graph/model_graph_json.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class SeedWriter {
 public:
  explicit SeedWriter(fs::path root) : root_(std::move(root)) {}

  void write_all() const {
    write_json();
    write_documents();
    write_runs();
    write_archives();
    write_data_sets();
    write_checkpoints();
    write_schedules();
    write_foreign_files();
    write_frames();
  }

 private:
  void put(const std::string& target, const std::string& name, const std::string& bytes) const {
    const fs::path folder = root_ / "tests/fuzz/corpus" / target;
    fs::create_directories(folder);
    std::ofstream(folder / name, std::ios::binary) << bytes;
  }
  std::string repository_file(const std::string& path) const {
    return read_text_file(root_ / path);
  }

  void write_json() const {
    put("strict_json", "values",
        R"({"_format":"heteroperf-plan","a":[1,-2.5e3,true,null,"\u00e9\n"]})");
    put("strict_json", "levels", std::string(17, '[') + std::string(17, ']'));
    put("strict_json", "run_file_levels", std::string(65, '[') + std::string(65, ']'));
    put("strict_json", "open_levels", std::string(5000, '['));
    put("strict_json", "twice", R"({"a":1,"b":{"c":2,"c":3},"a":4})");
    put("strict_json", "other_format", R"({"_format":"heteroperf-cluster","x":)");
    put("strict_json", "numbers", R"([1e999,-1e999,18446744073709551616,1E-400,0.1e+5])");
    put("strict_json", "texts", "[\"\xff\", \"\\ud800\", \"\x1b[2J\", \"\\u0000\"]");
    std::string keys;
    for (int i = 0; i < 257; ++i) keys += fmt::format("{}\"k{}\":{}", i == 0 ? "{" : ",", i, i);
    put("strict_json", "keys", keys + "}");
  }

  void write_documents() const {
    const ModelGraph graph = small_classifier();
    put("documents", "graph", graph_to_text(graph));
    put("documents", "plan", plan_text(even_plan(graph, {.micro_batch = 2})));
    EfficiencyMatrix matrix;
    matrix.add({"a100", "gemm", "64x64x64", "fp32"}, {OpsPerSecond(1e13), {Provenance::file, "x"}});
    matrix.add({"a100", DeviceQuantity::memory_bytes}, {8e10, {Provenance::file, "x"}});
    put("documents", "efficiency", efficiency_matrix_text(matrix));
    put("documents", "cluster", repository_file("runners/cluster/descriptions/laptop.json"));
    put("documents", "mixed_cluster", repository_file("tests/data/clusters/two_clusters.json"));
    put("documents", "network", repository_file("scripts/samples/network.json"));
    put("documents", "towers", repository_file("scripts/samples/towers.json"));
    put("documents", "costs", R"({"forward":[1,1],"backward":[1,2],"weight":[1,1],"comm":0.1})");
    put("documents", "machines",
        R"({"machine_specs":{"A100":[312,40,300]},"machine_amounts":{"A100":{"2":1}},"baseline_machines":{}})");
    put("documents", "endless_machines",
        R"({"machine_specs":{"A100":[312,40,300]},"machine_amounts":{"A100":{"1000000":1000000}}})");
  }

  static SampleRun short_run() { return fixed_run({.warmup_steps = 1, .steps = 2}); }

  /// `line` stands before the last one of a short run.
  static std::string with_line(const std::string& line) {
    std::string text = short_run().text();
    return text.insert(text.rfind('\n', text.size() - 2) + 1, line + "\n");
  }

  void write_runs() const {
    const std::string no_hash(64, '0');
    const auto fields = [&](const std::string& rest) {
      return fmt::format(R"({{"t_ns":2000000000,"rank":0,{},"prev":"{}"}})", rest, no_hash);
    };
    put("journal", "fixed", short_run().text());
    put("journal", "search", search_run().text());
    put("journal", "planned", planned_run().text());
    put("journal", "torn", short_run().text().substr(0, 3000));
    // A baseline that is the run itself, or lies elsewhere.
    put("journal", "own_baseline",
        with_line(
            fields(R"("kind":"baseline","device_class":"a","record_sha256":")" + no_hash + '"')));
    put("journal", "baseline_elsewhere",
        with_line(
            fields(R"("kind":"baseline","device_class":"a","folder":"../..","record_sha256":")" +
                   no_hash + '"')));
    put("journal", "deep_config",
        with_line(
            fields(R"("kind":"config","config":)" + std::string(70, '[') + std::string(70, ']'))));
    put("journal", "key_twice",
        with_line(fields(R"("kind":"stop","kind":"config","status":"complete")")));
    put("record", "fixed", build_record(short_run().journal()));
    put("record", "search", build_record(search_run().journal()));
    put("record", "planned", build_record(planned_run().journal()));
    Json record = Json::parse(build_record(short_run().journal()));
    record["system"]["host"]["value"] = "=cmd|' /C calc'!A0 [x](http://x) \x1b[2J`";
    record["system"]["binding"] = {{{"host", "a"}, {"cpus", "0-18446744073709551615,1-0,-,7"}}};
    put("record", "hostile_texts", record.dump());
    const TemporaryFolder folder;
    short_run().write_finished(RunFiles{folder.path() / "a"});
    const SuitePlan plan{"20260101T101500Z-suite-0123abcd", "2026-01-01T10:15:00Z", {"a", "b"}};
    const std::string suite = build_suite_record(folder.path(), plan);
    put("suite", "suite", suite);
    for (const char* name : {"", "..", "/etc", "a/b"}) {
      Json other = Json::parse(suite);
      other["workloads"][0]["folder"] = name;
      put("suite", fmt::format("folder_{}", std::string(name).size()), other.dump());
    }
    SweepIndex index;
    index.sweep_id = "sweep-x";
    index.created_utc = "2026-01-01T00:00:00Z";
    index.command = {"run", "llm"};
    index.axes = {{"ranks"}};
    index.points = {{{"ranks", "1"}}, {{"ranks", "2"}}};
    index.repeats = 2;
    index.runs = there_and_back(index);
    const std::string sweep = sweep_json_text(index);
    put("suite", "sweep", sweep);
    Json leaving = Json::parse(sweep);
    leaving["runs"][0]["folder"] = "../../x";
    leaving["runs"][1]["point"] = 99;
    put("suite", "sweep_elsewhere", leaving.dump());
  }

  struct TarEntry {
    std::string name, data;
    unsigned type = AE_IFREG;
    std::string target = {};
  };
  /// Not compressed: the target does that, and so finds what tar files hold.
  static std::string tar_of(const std::vector<TarEntry>& entries) {
    std::string bytes(1 << 20, '\0');
    std::size_t used = 0;
    archive* out = archive_write_new();
    archive_write_set_format_gnutar(out);
    archive_write_set_bytes_per_block(out, 0);
    archive_write_open_memory(out, bytes.data(), bytes.size(), &used);
    for (const TarEntry& one : entries) {
      archive_entry* entry = archive_entry_new();
      archive_entry_set_pathname(entry, one.name.c_str());
      archive_entry_set_filetype(entry, one.type);
      archive_entry_set_perm(entry, 0644);
      if (one.type == AE_IFLNK) archive_entry_set_symlink(entry, one.target.c_str());
      if (one.type == AE_IFREG && !one.target.empty()) {
        archive_entry_set_hardlink(entry, one.target.c_str());
      }
      archive_entry_set_size(entry, static_cast<la_int64_t>(one.data.size()));
      archive_write_header(out, entry);
      archive_write_data(out, one.data.data(), one.data.size());
      archive_entry_free(entry);
    }
    archive_write_close(out);
    archive_write_free(out);
    return bytes.substr(0, used);
  }
  /// One header of a tar file, with its checksum, and a block of data.
  static std::string tar_header(const std::string& size, char type, const std::string& gap) {
    std::string header(512, '\0');
    header.replace(0, 7, "run/a.x");
    header.replace(100, 7, "0000644");
    header.replace(124, 11, size);
    header[156] = type;
    header.replace(257, 8, "ustar  \0", 8);
    if (!gap.empty()) {
      header.replace(386, 11, gap);
      header.replace(398, 11, "00000000001");
      header.replace(483, 11, "00000002000");
    }
    header.replace(148, 8, 8, ' ');
    unsigned sum = 0;
    for (const unsigned char c : header) sum += c;
    header.replace(148, 6, fmt::format("{:06o}", sum));
    header[154] = '\0';
    return header + std::string(3 * 512, '\0');
  }

  void write_archives() const {
    const TemporaryFolder folder;
    fs::create_directories(folder.path() / "run");
    std::ofstream(folder.path() / "run/journal.jsonl") << short_run().text();
    const fs::path packed = folder.path() / "run.tar.gz";
    pack_folder(folder.path() / "run", packed, PackedCheckpoints::none);
    put("archive", "run.tar.gz", read_text_file(packed));
    const std::string journal = short_run().text().substr(0, 300);
    put("archive", "no_manifest", tar_of({{"run/journal.jsonl", journal}}));
    put("archive", "wrong_manifest",
        tar_of({{"run/journal.jsonl", journal},
                {"run/MANIFEST.sha256",
                 std::string(64, '0') + "  journal.jsonl\n" + std::string(64, 'f') + "  ../x\n"}}));
    put("archive", "unlisted",
        tar_of({{"run/journal.jsonl", journal}, {"run/MANIFEST.sha256", ""}}));
    put("archive", "above", tar_of({{"../x", "x"}}));
    put("archive", "absolute", tar_of({{"/tmp/x", "x"}}));
    put("archive", "soft_link", tar_of({{"run/l", "", AE_IFLNK, "/etc/hostname"}}));
    put("archive", "hard_link", tar_of({{"run/a", "x"}, {"run/l", "", AE_IFREG, "run/a"}}));
    put("archive", "device", tar_of({{"run/d", "", AE_IFIFO}}));
    put("archive", "twice", tar_of({{"run/a", "x"}, {"run/a", "y"}, {"run/a/b", "z"}}));
    put("archive", "beside", tar_of({{"run/a", "x"}, {"other/a", "y"}}));
    std::vector<TarEntry> folders;
    for (int i = 0; i < 8; ++i) {
      folders.push_back({fmt::format("run/{}/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p", i), "", AE_IFDIR});
    }
    put("archive", "folders", tar_of(folders));
    put("archive", "promises", tar_header("77777777777", '0', ""));
    put("archive", "sparse", tar_header("00000000001", 'S', "77777777777"));
    put("archive", "cut.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b", 11));
  }

  static std::string big_endian(std::uint32_t value) {
    std::string bytes;
    for (const unsigned shift : {24U, 16U, 8U, 0U}) bytes += static_cast<char>(value >> shift);
    return bytes;
  }
  /// The target's form: how long the file of images is, the images, the labels.
  static std::string idx_input(const std::string& images, const std::string& labels) {
    const std::size_t size = images.size();
    std::string input;
    for (const unsigned shift : {0U, 8U, 16U, 24U}) input += static_cast<char>(size >> shift);
    return input + images + labels;
  }

  void write_data_sets() const {
    std::string pixels, marks;
    for (int i = 0; i < 16; ++i) {
      pixels += {static_cast<char>(i), static_cast<char>(3 * i), static_cast<char>(7 * i), 'x'};
      marks += static_cast<char>(i % 2);
    }
    const std::string labels = big_endian(0x801) + big_endian(16) + marks;
    const auto shape = [&](std::uint32_t n, std::uint32_t rows, std::uint32_t columns) {
      return big_endian(0x803) + big_endian(n) + big_endian(rows) + big_endian(columns);
    };
    put("idx", "plain", idx_input(shape(16, 2, 2) + pixels, labels));
    put("idx", "huge",
        idx_input(shape(0xffffffff, 32768, 32768) + pixels,
                  big_endian(0x801) + big_endian(0xffffffff) + marks));
    put("idx", "empty", idx_input(shape(0, 2, 2), big_endian(0x801) + big_endian(0)));
    put("idx", "gap",
        idx_input(shape(16, 2, 2) + pixels,
                  big_endian(0x801) + big_endian(16) + std::string(15, '\0') + '\x09'));
    put("idx", "zipped",
        idx_input(repository_file("scripts/samples/digits/t10k-images-idx3-ubyte.gz"),
                  repository_file("scripts/samples/digits/t10k-labels-idx1-ubyte.gz")));
    std::string batch;
    for (char label = 0; label < 3; ++label)
      batch += label + std::string(3072, static_cast<char>(40 * label));
    put("cifar", "batch", batch);
    put("cifar", "cut", batch.substr(0, 5000));
    put("cifar", "label", "\x0a" + std::string(3072, 'x'));
    const std::string text = repository_file("scripts/samples/input.txt").substr(0, 600);
    put("tokens", "text", std::string("\0\x08\0", 3) + text);
    put("tokens", "two_bytes", std::string("\x01\x04\xff", 3) + std::string(400, '\x01'));
    put("tokens", "four_bytes",
        std::string("\x02\x03\0", 3) + std::string("\x01\0\0\0\x02\0\0\0", 8) +
            std::string(160, '\0'));
    put("tokens", "beyond", std::string("\x02\x03\x10", 3) + std::string(160, '\xff'));
    put("tokens", "odd", std::string("\x01\x03\0", 3) + std::string(99, '\0'));
  }

  void write_checkpoints() const {
    const TemporaryFolder folder;
    std::vector<float> values(12, 1.5F);
    const std::vector<std::int64_t> shape{3, 4};
    const TensorPiece piece{
        "w",          StoredType::f32, shape, whole_box(shape), dense_strides(whole_box(shape)),
        values.data()};
    const CheckpointWriter writer(folder.path() / "step-1");
    writer.publish({.workload = "llm",
                    .graph_hash = std::string(32, '0'),
                    .training = "",
                    .seed = 1,
                    .step = 1},
                   {writer.write(0, {piece})});
    const std::string index = read_text_file(folder.path() / "step-1/index.json");
    const std::string data = read_text_file(folder.path() / "step-1/rank-0.safetensors");
    const auto input = [&](const std::string& text) { return text + '\0' + data; };
    put("checkpoint", "whole", input(index));
    put("checkpoint", "cut", input(index).substr(0, index.size() + 20));
    for (const auto& [name, from, to] : std::vector<std::array<const char*, 3>>{
             {"elsewhere", "rank-0.safetensors", "../../etc/x"},
             {"folder", "rank-0.safetensors", ".."},
             {"extent", "[3,4]", "[9223372036854775807,4]"},
             {"dimensions", "[3,4]", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1]"},
             {"corner", "\"last\":[3,4]", "\"last\":[-3,4]"},
             {"overlap", "\"first\":[0,0]", "\"first\":[1,0]"}}) {
      std::string changed = index;
      const std::size_t at = changed.find(from);
      HETEROPERF_EXPECT(at != std::string::npos);
      changed.replace(at, std::string(from).size(), to);
      put("checkpoint", name, input(changed));
    }
  }

  void write_schedules() const {
    ScheduleRequest request;
    request.ranks = 2;
    request.micro_batches = 3;
    request.costs = uniform_costs(2, 1, 1, 1, 0);
    const Schedule schedule = find_generator("1f1b").make(request);
    put("documents", "schedule", schedule_to_text(schedule));
    put("trace", "step",
        trace_text(schedule, simulate(schedule), {TraceKind::simulated, "run", "host", "0.1.0"}));
    const TracedRank rank{"rank 0", 0, {{4, {0, 9}, {{0, 1, {0, 5}}, {1, -1, {5, 9}}}}}};
    constexpr std::array lanes{"compute", "messages"};
    put("trace", "lanes",
        lanes_trace_text(schedule, {rank}, lanes, {TraceKind::measured, "run", "host", "0.1.0"}));
    put("trace", "no_events", R"({"traceEvents":[]})");
    put("trace", "numbers",
        R"({"traceEvents":[{"ph":"X","name":"F","ts":1e308,"dur":-1e308,"tid":1e300}]})");
    put("trace", "types",
        R"({"traceEvents":[{"ph":1},[],null,{"ph":"M","name":"thread_name","tid":0,"args":[]}]})");
    put("trace", "levels", R"({"traceEvents":)" + std::string(4000, '['));
    put("schedule_csv", "written", write_csv(schedule));
    put("schedule_csv", "theirs", repository_file("scripts/samples/theirs.csv"));
    for (const char* name :
         {"zb1p_2rank_2stage_compute", "zb1p_2rank_2stage_comms", "dualpipev_4rank_10mb"}) {
      put("schedule_csv", name,
          repository_file(fmt::format("tests/data/schedules/pytorch_{}.csv", name)));
    }
    put("schedule_csv", "far", "0F0,99999999999F1,1F2147483647\n0B-1\n");
    put("schedule_csv", "odd",
        "(0F0;0B0)OVERLAP_F_B,(0F1;)OVERLAP_F_B,\xef\xbb\xbf,0SEND_F0,0RECV_B0\n,,\n");
  }

  void write_foreign_files() const {
    const std::string yaml =
        "system:\n  hetero:\n    hetero_process_meshes: [2, 1, 1, 1, 1, 1, 1, 1, 2, 1]\n"
        "    hetero_device_types: [A800, BI150]\n    hetero_pipeline_layer_split: [6, 6]\n"
        "  recompute:\n    recompute_granularity: full\n"
        "    recompute_granularity_per_stage_micro_batch:\n      - [1, 30, 0, 2, 0]\n      - [1, "
        "30, 1, 2, 1]\n"
        "model:\n  num_layers: 12\n  micro_batch_size: 2\n  global_batch_size: 64\n";
    put("yaml", "flagscale", yaml);
    put("yaml", "many_ranks",
        "system: {hetero: {hetero_process_meshes: [1048576, 1, 1, 1048576, 1048576]}}\nmodel: "
        "{num_layers: 1048576, micro_batch_size: 1, global_batch_size: 1048576}\n");
    put("yaml", "aliases",
        "a: &a [x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: &d [*c, *c, *c, "
        "*c]\nsystem: {hetero: {hetero_process_meshes: [*d, *d]}}\n");
    put("yaml", "circle", "system: &a {hetero: {hetero_process_meshes: [*a]}}\nmodel: *a\n");
    put("yaml", "levels", std::string(3000, '['));
    put("tables", "trace", "Timestamp,A100-40_us-central1-a,V100-16_us-west1-b\n0,4,8\n60.5,2,0\n");
    put("tables", "power", "run_id,watts,level\na,120.5,1\nb,nan,2\n");
    put("tables", "availability", "run_id,availability\na,available\na,preview\n");
    put("tables", "aiperf", "Final Score : 1234.5 GFLOPS\nFinal Regulated Score : 1e999 GFLOPS\n");
    put("tables", "digits", "Final Score : " + std::string(3000, '1') + " GFLOPS\n");
    put("metis", "profile",
        R"({"model":{"model_name":"GPT","num_layers":3,"parameters":{"parameters_per_layer_bytes":[100,200,300]}},)"
        R"("execution_time":{"forward_backward_time_ms":6.5,"optimizer_time_ms":2.0,"batch_generator_time_ms":0.5,)"
        R"("layer_compute_total_ms":[1.0,2.0,3.0]},"execution_memory":{"layer_memory_total_mb":[10,20.5,30]}})");
    const SmallSailor sailor;
    std::string files;
    for (const Json* json :
         {&sailor.training, &sailor.profiles, &sailor.layers, &sailor.network, &sailor.devices}) {
      files += json->dump() + '\0';
    }
    put("sailor", "small", files);
  }

  void write_frames() const {
    const std::string nonce(nonce_bytes, 'n'), token(64, 't');
    const ControlHandshake handshake{1, nonce, nonce};
    const std::string stranger =
        encode({Frame::Kind::hello, 1, nonce}) + encode({Frame::Kind::challenge, 0, nonce}) +
        encode({Frame::Kind::answer, 0, control_proof(ControlEnd::spoke, handshake, token)}) +
        encode({Frame::Kind::welcome, 0, control_proof(ControlEnd::hub, handshake, token)});
    const std::string peer =
        encode({Frame::Kind::post, 0, "{}"}) + encode({Frame::Kind::call, 7, "?"}) +
        encode({Frame::Kind::reply, 7, "!"}) +
        encode(heartbeat_frame(OverdueWait{3, {RankId(1), RankId(2)}})) +
        encode(failure_frame({RankId(2), ErrorKind::timeout, "no sign of life", true})) +
        encode({Frame::Kind::goodbye, 0, ""});
    put("control_frames", "stranger", '\xfe' + stranger);
    put("control_frames", "stranger_byte_by_byte", '\0' + stranger);
    put("control_frames", "peer", '\xff' + peer);
    put("control_frames", "peer_in_pieces", '\x0f' + peer);
    put("control_frames", "flood", '\xfe' + std::string(4000, 'x'));
    put("control_frames", "great",
        '\xfe' + encode({Frame::Kind::hello, 1, std::string(1000, 'x')}));
    put("control_frames", "half", '\xff' + std::string("\xff\xff\xff\x3f\x03", 5));
    put("control_frames", "odd_failure",
        '\xff' + encode({Frame::Kind::failure, ~std::uint64_t{0}, "\x63"}));
    put("control_frames", "odd_heartbeat",
        '\xff' + encode({Frame::Kind::heartbeat, 1, "\xff\xff\xff\xff\x01"}));
  }

  fs::path root_;
};

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  heteroperf::SeedWriter(argv[1]).write_all();
  return 0;
}
