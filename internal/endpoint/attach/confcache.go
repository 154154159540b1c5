// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"sync"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/recent"
)

// confCache caches decoded plugin configurations: a node's pods share a few, and decoding JSON is a tenth of an ADD.
// Only properties that depend on the configuration alone are cached.
type confCache struct {
	mu    sync.Mutex
	confs recent.Cache[cachedConf] // by type and configuration
}

type cachedConf struct {
	decoded *plugin.Decoded // nil: not decoded yet
	valid   bool            // validated by its planner and its allocator
	typed   bool            // ipam is set
	ipam    string
}

func confName(conf model.PluginConf) []byte { return append([]byte(conf.Type), conf.Raw...) }

func (k *confCache) get(conf model.PluginConf) cachedConf {
	c, _ := k.confs.Get(confName(conf))
	return c
}

func (k *confCache) set(conf model.PluginConf, change func(*cachedConf)) {
	k.mu.Lock() // changes of one configuration do not overwrite each other
	defer k.mu.Unlock()
	name := confName(conf)
	c, _ := k.confs.Get(name)
	change(&c)
	k.confs.Put(name, c)
}
