// `nvidia-smi topo -m`: a matrix of GPUs and NICs, bound by its header.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "interop/hardware/line_words.h"
#include "interop/hardware/topology.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostColumns = 1024;  // in a matrix

/// The header is underlined by escape sequences.
std::string plain(std::string_view line) {
  std::string text = without_escapes(line);
  std::erase(text, '\r');
  return text;
}

bool is_gpu(std::string_view name) {
  return name.size() > 3 && name.size() < 8 && name.starts_with("GPU") &&
         name.find_first_not_of("0123456789", 3) == name.npos;
}

/// A cell: NVLinks, or what PCIe path there is.
struct Cell {
  std::int64_t links = 0;
  PciPath path = PciPath::across;
};

class MatrixReader {
 public:
  explicit MatrixReader(const std::string& file) : file_(file) {}

  Topology read(std::string_view text) {
    while (!text.empty()) {
      const std::size_t newline = std::min(text.find('\n'), text.size());
      ++line_;
      if (newline > kMostLine) {
        throw InputError(
            file_, fmt::format("{}:1", line_),
            fmt::format("a line of {} bytes; at most {} are allowed", newline, kMostLine));
      }
      read_line(plain(text.substr(0, newline)));
      text.remove_prefix(std::min(newline + 1, text.size()));
    }
    return topology();
  }

 private:
  [[noreturn]] void fail(const Word& word, const std::string& allowed) const {
    throw InputError(file_, fmt::format("{}:{}", line_, word.column),
                     fmt::format("found \"{}\"; {}", printable(word.text), allowed));
  }

  void read_line(const std::string& line) {
    const std::vector<Word> words = words_of(line);
    if (words.empty()) return;
    if (columns_.empty()) {
      if (is_gpu(words[0].text) && words.size() > 1 && words[1].text != "X") read_header(words);
      return;
    }
    const auto known = std::find(columns_.begin(), columns_.end(), words[0].text);
    if (known == columns_.end()) return read_legend(words);
    const std::size_t row = std::size_t(known - columns_.begin());
    if (words.size() == 2 && words[0].text.ends_with(':')) return;
    if (words.size() < columns_.size() + 1) {
      fail(words[0], fmt::format("{} cells are required in its row", columns_.size()));
    }
    if (!cells_[row].empty()) fail(words[0], "its row is there twice");
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      cells_[row].push_back(cell(words[i + 1], row == i));
    }
  }

  void read_header(const std::vector<Word>& words) {
    for (const Word& word : words) {
      if (word.text == "CPU" || word.text == "NUMA") break;  // "CPU Affinity", "NUMA Affinity"
      if (columns_.size() == kMostColumns) {
        fail(word, fmt::format("at most {} columns are allowed", kMostColumns));
      }
      if (std::find(columns_.begin(), columns_.end(), word.text) != columns_.end()) {
        fail(word, "its column is there twice");
      }
      if (is_gpu(word.text)) {
        if (gpus_ != columns_.size()) fail(word, "the columns of GPUs come first");
        ++gpus_;
      }
      columns_.emplace_back(word.text);
    }
    cells_.resize(columns_.size());
  }

  /// "NIC0: mlx5_0".
  void read_legend(const std::vector<Word>& words) {
    if (words.size() != 2 || !words[0].text.ends_with(':')) return;
    const std::string label(words[0].text.substr(0, words[0].text.size() - 1));
    if (label.starts_with("NIC")) names_[label] = printable(words[1].text);
  }

  Cell cell(const Word& word, bool self) const {
    const std::string_view text = word.text;
    if (self != (text == "X")) fail(word, "X is required on the diagonal, and only there");
    if (text == "X" || text == "PIX" || text == "PXB") return {0, PciPath::same_switch};
    if (text == "PHB" || text == "NODE") return {0, PciPath::same_host};
    if (text == "SYS" || text == "SOC") return {0, PciPath::across};
    const bool digits =
        text.size() > 2 && text.size() < 5 && text.find_first_not_of("0123456789", 2) == text.npos;
    if (text.starts_with("NV") && digits && text != "NV0") {
      // Paths beside NVLink are not printed.
      return {std::stoll(std::string(text.substr(2))), PciPath::across};
    }
    fail(word, "X, NV1 and up, PIX, PXB, PHB, NODE or SYS is allowed");
  }

  Topology topology() const {
    if (gpus_ < 1) {
      throw InputError(file_, "", "no matrix of nvidia-smi topo -m: no line \"GPU0 GPU1 ...\"");
    }
    Topology result;
    result.file = file_;
    result.kind = "nvidia-smi topo -m";
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i < gpus_ && cells_[i].empty()) {
        throw InputError(file_, "", fmt::format("no row of {}", printable(columns_[i])));
      }
    }
    for (std::size_t i = 0; i < gpus_; ++i) {
      auto& links = result.links.emplace_back();
      auto& paths = result.paths.emplace_back();
      for (std::size_t j = 0; j < gpus_; ++j) {
        if (cells_[i][j].links != cells_[j][i].links || cells_[i][j].path != cells_[j][i].path) {
          throw InputError(file_, "",
                           fmt::format("{} and {} are connected differently in each other's rows",
                                       printable(columns_[i]), printable(columns_[j])));
        }
        links.push_back(cells_[i][j].links);
        paths.push_back(cells_[i][j].path);
      }
    }
    for (std::size_t j = gpus_; j < columns_.size(); ++j) {
      TopologyNic nic;
      const auto name = names_.find(columns_[j]);
      nic.name = name == names_.end() ? printable(columns_[j]) : name->second;
      for (std::size_t i = 0; i < gpus_; ++i) {
        nic.near |= cells_[i][j].links == 0 && cells_[i][j].path == PciPath::same_switch;
      }
      result.nics.push_back(std::move(nic));
    }
    return result;
  }

  const std::string& file_;
  std::size_t line_ = 0, gpus_ = 0;
  std::vector<std::string> columns_;
  std::vector<std::vector<Cell>> cells_;      ///< by row
  std::map<std::string, std::string> names_;  ///< of NICs, by label
};

}  // namespace

Topology parse_topology_text(std::string_view text, const std::string& file) {
  return MatrixReader(file).read(text);
}

Topology parse_topology(std::string_view text, const std::string& file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool xml = first != text.npos && text[first] == '<';
  return xml ? parse_topology_xml(text, file) : parse_topology_text(text, file);
}

Topology read_topology(const std::filesystem::path& path) {
  return parse_topology(read_file(path, Bytes(std::int64_t{16} << 20)), path.string());
}

}  // namespace plimsoll
