#include "base/error.h"
#include "cache/disk_store.h"

namespace mererun {

std::unique_ptr<DiskStore> open_disk_store(Ops&, const StateGeometry&, const StatePools&,
                                           const DiskStoreOptions&) {
  throw Error(ErrorCode::kUnsupported,
              "prefix cache folder: expected a build with SQLite and xxHash, got one without");
}

}  // namespace mererun
