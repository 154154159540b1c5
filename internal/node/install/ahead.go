// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/model"
)

// ErrNotFirst reports that a container runtime uses another network: pods get it without weft and without its policies.
var ErrNotFirst = errors.New("the runtime uses it instead of weft's")

// Weft reports whether pods of a configuration get weft's network: weft-cni is one of its plugins, or a meta plugin
// that calls it.
func Weft(b []byte) bool {
	if bytes.Contains(b, []byte(`"`+cni.ShimType+`"`)) || bytes.Contains(b, []byte(clusterName)) {
		return true
	}
	list, err := confdir.Parse(b, "")
	return err == nil && slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool {
		return isMultus(p.Network.Type) && !otherNetwork(p.Bytes)
	})
}

// otherNetwork reports whether a configuration of Multus that does not name weft has another network for all pods:
// inlined, or by the path of its file. The name of a NetworkAttachmentDefinition says nothing about its plugins.
func otherNetwork(b []byte) bool {
	var conf struct {
		Delegates      []json.RawMessage `json:"delegates"`
		ClusterNetwork string            `json:"clusterNetwork"`
	}
	return json.Unmarshal(b, &conf) == nil && (len(conf.Delegates) > 0 || filepath.IsAbs(conf.ClusterNetwork))
}

// first returns an error with ErrNotFirst if a runtime uses a file before weft's own. Invalid files and the loopback
// network are no network of pods.
func (p *place) first() error {
	names, content, err := p.read()
	if err != nil {
		return err
	}
	for _, name := range names {
		list, err := confdir.Parse(content[name], p.dir)
		switch {
		case Weft(content[name]):
			return nil
		case err != nil || len(list.Plugins) == 1 && list.Plugins[0].Network.Type == loopback:
			continue
		}
		return model.Errorf(model.CodeInvalidConf, "remove the file, or give it a name that sorts after "+clusterName,
			"configuration %s: %w: pods get network %q, without weft's policies", p.path(name), ErrNotFirst, list.Name)
	}
	return nil
}
