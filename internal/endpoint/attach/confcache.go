// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"sync"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// confCache caches decoded plugin configurations: a node's pods share a few, and decoding JSON is a tenth of an ADD.
// Only properties that depend on the configuration alone are cached.
type confCache struct {
	mu         sync.Mutex
	confs, old map[string]*cachedConf // by type and configuration; old is the previous generation
}

type cachedConf struct {
	decoded *plugin.Decoded // nil: not decoded yet
	valid   bool            // validated by its planner and its allocator
	typed   bool            // ipam is set
	ipam    string
}

// confCacheSize bounds each generation. Configurations that are specific to a pod (port mappings) evict entries that
// were not used during a generation. Two generations ensure that an entry stays during a call.
const confCacheSize = 256

// entryLocked returns the entry of a configuration.
func (k *confCache) entryLocked(conf model.PluginConf) *cachedConf {
	name := conf.Type + string(conf.Raw)
	if c := k.confs[name]; c != nil {
		return c
	}
	c := k.old[name]
	if c == nil {
		c = &cachedConf{}
	}
	if k.confs == nil || len(k.confs) >= confCacheSize {
		k.confs, k.old = map[string]*cachedConf{}, k.confs
	}
	k.confs[name] = c
	return c
}

func (k *confCache) get(conf model.PluginConf) cachedConf {
	k.mu.Lock()
	defer k.mu.Unlock()
	return *k.entryLocked(conf)
}

func (k *confCache) set(conf model.PluginConf, change func(*cachedConf)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k.entryLocked(conf))
}
