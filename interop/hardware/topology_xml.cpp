// NCCL's topology dump, read element by element with Expat.
#ifdef PLIMSOLL_EXPAT
#include <expat.h>
#endif
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <set>

#include "base/json.h"
#include "interop/hardware/topology.h"

namespace plimsoll {

#ifndef PLIMSOLL_EXPAT

Topology parse_topology_xml(std::string_view, const std::string&) {
  throw EnvironmentError("built without Expat (libexpat1-dev), which reads NCCL's topology dumps");
}

#else

namespace {

constexpr std::size_t kMostNesting = 64;
constexpr std::size_t kMostElements = 100'000;
constexpr std::size_t kMostGpus = 1024;

struct Gpu {
  std::string where, bus;
  std::int64_t number = 0;
  std::size_t cpu = 0;
  std::vector<std::size_t> bridges;  ///< elements <pci> around it, outermost first
  struct Link {
    std::string target;
    std::int64_t count = 0;
    bool to_switch = false;
  };
  std::vector<Link> links;
};

struct Net {
  TopologyNic nic;
  std::vector<std::size_t> bridges;
};

using Attributes = std::map<std::string, std::string>;

class DumpReader {
 public:
  explicit DumpReader(const std::string& file)
      : parser_(XML_ParserCreate(nullptr), XML_ParserFree), file_(file) {
    if (!parser_) throw EnvironmentError("cannot create an XML parser");
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), &DumpReader::opened, &DumpReader::closed);
    // Entities are what XML can be blown up with; a dump has none.
    XML_SetStartDoctypeDeclHandler(parser_.get(), &DumpReader::doctype);
  }

  Topology read(std::string_view text) {
    constexpr std::size_t kMostBytes = std::size_t{16} << 20;
    if (text.size() > kMostBytes) throw InputError(file_, "", "is larger than 16 MiB");
    const XML_Status status =
        XML_Parse(parser_.get(), text.data(), int(text.size()), /*isFinal=*/1);
    if (error_) std::rethrow_exception(error_);
    if (status != XML_STATUS_OK) {
      const XML_Error error = XML_GetErrorCode(parser_.get());
      if (error == XML_ERROR_NO_MEMORY) throw std::bad_alloc();
      throw InputError(file_, where(), XML_ErrorString(error));
    }
    return topology();
  }

 private:
  struct Element {
    std::string name;
    std::size_t id;
    Attributes attributes;
  };

  // Expat is C: exceptions wait until it has returned.
  template <class Body>
  void guarded(Body body) {
    if (error_) return;
    try {
      body();
    } catch (...) {
      error_ = std::current_exception();
      XML_StopParser(parser_.get(), XML_FALSE);
    }
  }
  static void opened(void* self, const XML_Char* name, const XML_Char** attributes) {
    auto& reader = *static_cast<DumpReader*>(self);
    reader.guarded([&] { reader.open(name, attributes); });
  }
  static void closed(void* self, const XML_Char*) {
    auto& reader = *static_cast<DumpReader*>(self);
    if (!reader.error_) reader.stack_.pop_back();
  }
  static void doctype(void* self, const XML_Char*, const XML_Char*, const XML_Char*, int) {
    auto& reader = *static_cast<DumpReader*>(self);
    reader.guarded([&] { reader.fail("a document type declaration is not allowed"); });
  }

  std::string where() const {
    return fmt::format("{}:{}", XML_GetCurrentLineNumber(parser_.get()),
                       XML_GetCurrentColumnNumber(parser_.get()) + 1);
  }
  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(file_, where(), message);
  }

  void open(const XML_Char* name, const XML_Char** pairs) {
    if (stack_.size() == kMostNesting) fail(fmt::format("nested deeper than {}", kMostNesting));
    if (elements_ == kMostElements) fail(fmt::format("more than {} elements", kMostElements));
    Element element{name, elements_++, {}};
    for (; pairs[0] != nullptr; pairs += 2) element.attributes.emplace(pairs[0], pairs[1]);
    if (stack_.empty() && element.name != "system") {
      fail(fmt::format("found <{}>; <system> is required", printable(name)));
    }
    stack_.push_back(std::move(element));
    if (stack_.back().name == "cpu") cpu();
    if (stack_.back().name == "gpu") gpu();
    if (stack_.back().name == "nvlink") nvlink();
    if (stack_.back().name == "net") net();
  }

  const std::string& attribute(const char* key) const {
    const Element& element = stack_.back();
    const auto found = element.attributes.find(key);
    if (found == element.attributes.end()) {
      fail(fmt::format("<{}> without attribute {}", printable(element.name), key));
    }
    return found->second;
  }

  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most) const {
    const std::string& text = attribute(key);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
      fail(fmt::format("found {}=\"{}\"; an integer from {} to {} is required", key,
                       printable(text), least, most));
    }
    return value;
  }

  void cpu() {
    const auto& attributes = stack_.back().attributes;
    const auto host = attributes.find("host_hash");
    if (host == attributes.end()) return;
    hosts_.insert(host->second);
    if (hosts_.size() > 1) fail("CPUs of several hosts; the dump of one is required");
  }

  /// The innermost enclosing <pci>, whose device this is.
  const Element* device() const {
    const auto pci = std::find_if(stack_.rbegin(), stack_.rend(),
                                  [](const Element& element) { return element.name == "pci"; });
    return pci == stack_.rend() ? nullptr : &*pci;
  }

  /// The <pci> elements around that device: what is behind the same one is behind one switch.
  std::vector<std::size_t> bridges() const {
    std::vector<std::size_t> ids;
    for (const Element& element : stack_) {
      if (element.name == "pci") ids.push_back(element.id);
    }
    if (!ids.empty()) ids.pop_back();
    return ids;
  }

  void gpu() {
    if (gpus_.size() == kMostGpus) fail(fmt::format("more than {} GPUs", kMostGpus));
    Gpu gpu;
    gpu.where = where();
    gpu.number = integer("dev", 0, 4095);
    const std::int64_t capability = integer("sm", 1, 1000);
    if (!gpus_.empty() && capability != capability_) fail("GPUs of several generations");
    capability_ = capability;
    for (const Element& element : stack_) {
      if (element.name == "cpu") gpu.cpu = element.id;
    }
    gpu.bridges = bridges();
    if (const Element* pci = device()) {
      const auto bus = pci->attributes.find("busid");
      if (bus != pci->attributes.end()) gpu.bus = bus->second;
      read_speed(*pci);
    }
    gpus_.push_back(std::move(gpu));
  }

  /// link_speed "32.0 GT/s PCIe", link_width "16". Lanes carry 8 bits in 10 up to 5 GT/s, 128 in
  /// 130 up to 32 GT/s (PCI Express Base Specification, 8b/10b and 128b/130b encoding), 236 bytes
  /// of data in 256 beyond (flit mode).
  void read_speed(const Element& pci) {
    const auto speed = pci.attributes.find("link_speed"), width = pci.attributes.find("link_width");
    if (speed == pci.attributes.end() || width == pci.attributes.end()) return;
    double rate = 0;
    std::int64_t lanes = 0;
    const auto parse = [](const std::string& text, auto& value) {
      return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
    };
    if (!parse(speed->second, rate) || !parse(width->second, lanes)) return;
    if (!(rate >= 2.5 && rate <= 128) || lanes < 1 || lanes > 32) return;
    const double part = rate <= 5 ? 8.0 / 10 : rate <= 32 ? 128.0 / 130 : 236.0 / 256;
    const BytesPerSecond bandwidth(rate * 1e9 * double(lanes) * part / 8);
    if (!pcie_ || bandwidth < *pcie_) pcie_ = bandwidth;
  }

  void nvlink() {
    if (gpus_.empty() || stack_.size() < 2 || stack_[stack_.size() - 2].name != "gpu") return;
    Gpu::Link link{attribute("target"), integer("count", 0, 64), false};
    const auto kind = stack_.back().attributes.find("tclass");
    // PCI class of the other end, as NCCL's graph/xml.cc names them: 0x068000 is an NVSwitch,
    // 0x068001 a CPU, 0x03 a GPU. No GPU reaches another over a link to a CPU.
    const bool known = kind != stack_.back().attributes.end();
    if (known && kind->second.starts_with("0x068001")) return;
    link.to_switch = known && kind->second.starts_with("0x068000");
    gpus_.back().links.push_back(std::move(link));
  }

  void net() {
    if (nets_.size() == kMostGpus) fail(fmt::format("more than {} NICs", kMostGpus));
    Net net;
    net.nic.name = printable(attribute("name"));
    net.nic.speed = BytesPerSecond(double(integer("speed", 1, 100'000'000)) * 1e6 / 8);  // Mbit/s
    net.bridges = bridges();
    nets_.push_back(std::move(net));
  }

  static bool share(const std::vector<std::size_t>& a, const std::vector<std::size_t>& b) {
    return !a.empty() && !b.empty() && a.front() == b.front();
  }

  Topology topology() {
    if (gpus_.empty()) throw InputError(file_, "", "no <gpu> in this topology");
    std::sort(gpus_.begin(), gpus_.end(),
              [](const Gpu& a, const Gpu& b) { return a.number < b.number; });
    Topology result;
    result.file = file_;
    result.kind = "NCCL topology dump";
    result.compute_capability = capability_;
    result.pcie = pcie_;
    const std::size_t count = gpus_.size();
    result.links.assign(count, std::vector<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0 && gpus_[i].number == gpus_[i - 1].number) {
        throw InputError(file_, gpus_[i].where,
                         fmt::format("GPU {} is there twice", gpus_[i].number));
      }
      auto& paths = result.paths.emplace_back();
      for (std::size_t j = 0; j < count; ++j) {
        const bool same = i == j || share(gpus_[i].bridges, gpus_[j].bridges);
        paths.push_back(same                           ? PciPath::same_switch
                        : gpus_[i].cpu == gpus_[j].cpu ? PciPath::same_host
                                                       : PciPath::across);
      }
    }
    read_links(result);
    for (Net& net : nets_) {
      net.nic.near = std::any_of(gpus_.begin(), gpus_.end(),
                                 [&](const Gpu& gpu) { return share(gpu.bridges, net.bridges); });
      result.nics.push_back(net.nic);
    }
    return result;
  }

  void read_links(Topology& result) const {
    const std::size_t count = gpus_.size();
    std::vector<std::int64_t> to_switch(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::int64_t all = 0;
      for (const Gpu::Link& link : gpus_[i].links) {
        all += link.count;
        const auto other = std::find_if(gpus_.begin(), gpus_.end(),
                                        [&](const Gpu& gpu) { return gpu.bus == link.target; });
        if (link.to_switch) {
          to_switch[i] += link.count;
        } else if (other != gpus_.end()) {
          result.links[i][std::size_t(other - gpus_.begin())] += link.count;
        }
      }
      result.links_of.push_back(all);
      result.switched |= to_switch[i] > 0;
    }
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < count; ++j) {
        if (i != j) result.links[i][j] += std::min(to_switch[i], to_switch[j]);
      }
    }
  }

  std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser_;
  const std::string& file_;
  std::exception_ptr error_;
  std::vector<Element> stack_;
  std::size_t elements_ = 0;
  std::set<std::string> hosts_;
  std::int64_t capability_ = 0;
  std::optional<BytesPerSecond> pcie_;
  std::vector<Gpu> gpus_;
  std::vector<Net> nets_;
};

}  // namespace

Topology parse_topology_xml(std::string_view text, const std::string& file) {
  return DumpReader(file).read(text);
}

#endif  // PLIMSOLL_EXPAT

}  // namespace plimsoll
