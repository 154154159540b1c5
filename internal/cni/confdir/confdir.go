// SPDX-License-Identifier: Apache-2.0

// Package confdir loads the network configurations of a directory as a container runtime does, and watches the
// directory.
//
// Files end in .conf, .conflist or .json. The first valid one in lexical order is the default network. A file is valid
// if it can be parsed, all its plugins exist in the binary directories, and each of them supports the configuration's
// version; an invalid file is reported and skipped. A file whose only plugin is loopback is never the default network:
// it configures the loopback network, which every pod gets first.
package confdir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/dhcp"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// Loopback is the network that every pod is attached to first, unless a file configures another one.
const Loopback = `{"cniVersion":"1.0.0","name":"cni-loopback","plugins":[{"type":"loopback"}]}`

// Network is a list that can be executed. Its Bytes hold all of its plugins, also those from further files.
type Network = libcni.NetworkConfigList

// File is the result of loading one file.
type File struct {
	Path    string `json:"path"`
	Network string `json:"network,omitempty"`
	// Error is the reason why the file is skipped.
	Error    string   `json:"error,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Snapshot is the content of the directory. It is immutable.
type Snapshot struct {
	Dir   string `json:"dir"`
	Files []File `json:"files"`
	// Network is the name of the default network; empty when there is none.
	Network string `json:"network,omitempty"`
	// Default and Loopback are the networks that a pod is attached to; nil if there is none.
	Default  *Network `json:"-"`
	Loopback *Network `json:"-"`
	// Problem is the reason why no pod can be attached, else empty.
	Problem string `json:"problem,omitempty"`
}

// Validator validates a list by executing its plugins; libcni's CNIConfig is one.
type Validator interface {
	ValidateNetworkList(ctx context.Context, list *libcni.NetworkConfigList) ([]string, error)
	GetStatusNetworkList(ctx context.Context, list *libcni.NetworkConfigList) error
}

// Load reads the directory. Errors are in the snapshot.
func Load(ctx context.Context, dir string, v Validator) Snapshot {
	s := Snapshot{Dir: dir}
	paths, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		s.Problem = fmt.Sprintf("network configurations cannot be read: %v", err)
		return s
	}
	slices.Sort(paths)
	for _, path := range paths {
		f, list := loadFile(ctx, path, v)
		s.Files = append(s.Files, f)
		switch {
		case list == nil:
		case onlyLoopback(list):
			if s.Loopback == nil {
				s.Loopback = list
			}
		case s.Default == nil:
			s.Default, s.Network = list, list.Name
		}
	}
	s.complete(ctx, v)
	return s
}

// complete adds the default loopback network and sets Problem.
func (s *Snapshot) complete(ctx context.Context, v Validator) {
	var problems []string
	if s.Loopback == nil {
		list, err := libcni.NetworkConfFromBytes([]byte(Loopback))
		if err == nil {
			_, err = v.ValidateNetworkList(ctx, list)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("loopback network: %v", err))
		} else {
			s.Loopback = list
		}
	}
	if s.Default == nil {
		bad := 0
		for _, f := range s.Files {
			if f.Error != "" {
				bad++
				problems = append(problems, f.Path+": "+f.Error)
			}
		}
		problems = append([]string{
			fmt.Sprintf("no network configuration in %s (%d files, %d bad)", s.Dir, len(s.Files), bad),
		}, problems...)
	} else if err := v.GetStatusNetworkList(ctx, s.Default); err != nil {
		problems = append(problems, fmt.Sprintf("network %s is not ready: %v", s.Default.Name, err))
	}
	s.Problem = strings.Join(problems, "; ")
}

func loadFile(ctx context.Context, path string, v Validator) (File, *Network) {
	f := File{Path: path}
	list, warnings, err := parseFile(path)
	if list != nil {
		f.Network = list.Name
	}
	f.Warnings = warnings
	if err == nil {
		if _, e := v.ValidateNetworkList(ctx, list); e != nil {
			err = fmt.Errorf("network %s: %w", list.Name, e)
		}
	}
	if err != nil {
		f.Error = err.Error()
		return f, nil
	}
	return f, list
}

// parseFile parses a configuration as libcni does and validates it as weft does: names, keys, versions.
func parseFile(path string) (*Network, []string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	list, err := Parse(b, filepath.Dir(path))
	if err != nil {
		return nil, nil, err
	}
	n, err := cni.ParseNetwork(list.Bytes)
	if err != nil {
		return list, nil, err
	}
	allocators := map[string]ipam.Allocator{}
	for _, a := range append(blocks.Readers(os.ReadFile), hostlocal.New(hostlocal.Config{}), static.New(), dhcp.New(nil)) {
		allocators[a.Type()] = a
	}
	var warnings []string
	for _, w := range cni.Lint(n, plugin.InAgent(), allocators) {
		if w.Field != "loadOnlyInlinedPlugins" {
			warnings = append(warnings, w.String())
		}
	}
	return list, warnings, nil
}

// Parse parses a list, or a single plugin's configuration as a list of one. Further plugins of a list are read from the
// directory dir/NETWORK.
func Parse(b []byte, dir string) (*Network, error) {
	var probe struct {
		Plugins *json.RawMessage `json:"plugins"`
		Type    string           `json:"type"`
	}
	if err := json.Unmarshal(b, &probe); err != nil {
		return nil, model.Errorf(model.CodeDecode, "", "network configuration: %w", err)
	}
	if probe.Plugins == nil && probe.Type != "" {
		single, err := libcni.NetworkPluginConfFromBytes(b)
		if err != nil {
			return nil, err
		}
		list, err := libcni.ConfListFromConf(single)
		if err != nil {
			return nil, err
		}
		return normalize(list, false)
	}
	list, err := libcni.NetworkConfFromBytes(b)
	if err != nil {
		return nil, err
	}
	if !list.LoadOnlyInlinedPlugins {
		more, err := libcni.NetworkPluginConfsFromFiles(dir, list.Name)
		if err != nil {
			return nil, err
		}
		list.Plugins = append(list.Plugins, more...)
		return normalize(list, len(more) > 0)
	}
	return normalize(list, false)
}

// normalize rejects plugin types that are not file names before any plugin is executed, and rewrites the list if its
// bytes lack plugins of further files, or have a prevResult, which only the runtime may set.
func normalize(list *Network, further bool) (*Network, error) {
	if len(list.Plugins) == 0 {
		return nil, errors.New("no plugins")
	}
	for i, p := range list.Plugins {
		if err := cni.CheckType(p.Network.Type); err != nil {
			return nil, model.Errorf(model.CodeInvalidConf, "", "plugins[%d].type %w", i, err)
		}
		further = further || len(p.Network.RawPrevResult) > 0
	}
	if further {
		return inline(list)
	}
	return list, nil
}

// inline writes the plugins that stood in further files into the list, so that it can be executed from its bytes alone.
func inline(list *Network) (*Network, error) {
	var o map[string]any
	if err := json.Unmarshal(list.Bytes, &o); err != nil {
		return nil, err
	}
	var plugins []map[string]json.RawMessage
	for _, p := range list.Plugins {
		var conf map[string]json.RawMessage
		if err := json.Unmarshal(p.Bytes, &conf); err != nil {
			return nil, err
		}
		delete(conf, "prevResult")
		plugins = append(plugins, conf)
	}
	o["plugins"], o["loadOnlyInlinedPlugins"] = plugins, true
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(b)
}

func onlyLoopback(list *Network) bool {
	return len(list.Plugins) == 1 && list.Plugins[0].Network.Type == "loopback"
}
