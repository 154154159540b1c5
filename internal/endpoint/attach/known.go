// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"sync"

	"github.com/weft-net/weft/internal/model"
)

// known remembers what was read of plugin objects: a node's pods come with the same few, and reading JSON is a tenth
// of an ADD. Only answers that depend on nothing but the object are kept.
type known struct {
	mu    sync.Mutex
	confs map[string]*knownConf // by type and object
}

type knownConf struct {
	valid bool // its planner and its allocator find it good
	typed bool // ipam is read
	ipam  string
}

// mostKnown bounds the memory: objects with something of their own in them (a pod's port mappings) push all out.
const mostKnown = 256

// of is what is known of an object; the caller holds no lock and uses get and set.
func (k *known) of(conf model.PluginConf) *knownConf {
	if c := k.confs[conf.Type+string(conf.Raw)]; c != nil {
		return c
	}
	if k.confs == nil || len(k.confs) >= mostKnown {
		k.confs = map[string]*knownConf{}
	}
	c := &knownConf{}
	k.confs[conf.Type+string(conf.Raw)] = c
	return c
}

func (k *known) get(conf model.PluginConf) knownConf {
	k.mu.Lock()
	defer k.mu.Unlock()
	return *k.of(conf)
}

func (k *known) set(conf model.PluginConf, change func(*knownConf)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k.of(conf))
}
