// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"sync"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// known remembers what was read of plugin objects: a node's pods come with the same few, and reading JSON is a tenth
// of an ADD. Only answers that depend on nothing but the object are kept.
type known struct {
	mu         sync.Mutex
	confs, old map[string]*knownConf // by type and object; old are those before the last time that there were too many
}

type knownConf struct {
	decoded *plugin.Decoded // nil: its planner has not read it
	valid   bool            // its planner and its allocator find it good
	typed   bool            // ipam is read
	ipam    string
}

// mostKnown bounds the memory: objects with something of their own in them (a pod's port mappings) push out what has
// not been asked for since as many others were. What a call has begun with it finds until it ends.
const mostKnown = 256

// of is what is known of an object; the caller holds no lock and uses get and set.
func (k *known) of(conf model.PluginConf) *knownConf {
	name := conf.Type + string(conf.Raw)
	if c := k.confs[name]; c != nil {
		return c
	}
	c := k.old[name]
	if c == nil {
		c = &knownConf{}
	}
	if k.confs == nil || len(k.confs) >= mostKnown {
		k.confs, k.old = map[string]*knownConf{}, k.confs
	}
	k.confs[name] = c
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
