#include "base/error.h"
#include "cache/disk_store.h"

namespace mererun {

bool is_disk_store_built() { return false; }

void require_disk_store() {
  throw Error(ErrorCode::kUnsupported,
              "prefix cache folder: expected a build with SQLite and xxHash, got one without",
              "leave out --prefix-cache-dir, or install libsqlite3-dev and libxxhash-dev and build again");
}

std::unique_ptr<DiskStore> open_disk_store(Ops&, const StateGeometry&, const StatePools&,
                                           const DiskStoreOptions&) {
  require_disk_store();
  return nullptr;
}

}  // namespace mererun
