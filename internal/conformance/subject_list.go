// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// List is a configuration list of any vendor, whose plugins are tested with their configuration in it.
type List struct {
	Name    string           `json:"name"`
	Type    string           `json:"type"`
	Plugins []map[string]any `json:"plugins"`
}

// ParseList parses a list, or a single plugin's configuration as a list of one.
func ParseList(b []byte) (*List, error) {
	var l List
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("configuration list: %w", err)
	}
	if len(l.Plugins) == 0 && l.Type != "" {
		var one map[string]any
		if err := json.Unmarshal(b, &one); err != nil {
			return nil, fmt.Errorf("configuration list: %w", err)
		}
		l.Plugins = []map[string]any{one}
	}
	if len(l.Plugins) == 0 {
		return nil, errors.New(`configuration list: it has no "plugins"`)
	}
	seen := map[string]bool{}
	for i, p := range l.Plugins {
		typ := stringField(p, "type")
		if typ == "" {
			return nil, fmt.Errorf("configuration list: plugins[%d] has no type", i)
		}
		if seen[typ] {
			return nil, fmt.Errorf(
				"configuration list: plugins[%d]: a second plugin of type %q; test each with its own list", i, typ,
			)
		}
		seen[typ] = true
	}
	return &l, nil
}

// Types returns the types of the list's plugins.
func (l *List) Types() []string {
	var out []string
	for _, p := range l.Plugins {
		out = append(out, stringField(p, "type"))
	}
	return out
}

// subjects returns the list's plugins: the first one creates the interface, the others are chained after an interface
// of the kit.
func (l *List) subjects() []*subject {
	var out []*subject
	for i, p := range l.Plugins {
		out = append(out, listSubject(p, i == 0))
	}
	return out
}

// listSubject returns a plugin with its configuration in the list. The kit cannot verify its effects: if chained, it is
// tested on the protocol and on leftovers.
func listSubject(conf map[string]any, first bool) *subject {
	s := &subject{typ: stringField(conf, "type"), ifName: "eth0", role: metaPlugin, needs: []string{"veth"}}
	if first {
		s.role = mainPlugin
	} else {
		s.preparePod, s.verifyWork = addPodInterface, func(*world, *pod) error { return nil }
	}
	if s.typ == "loopback" {
		s.ifName = "lo"
	}
	addresses, _ := conf["ipam"].(map[string]any)
	if s.delegates = stringField(addresses, "type") != ""; s.delegates {
		s.ipam = addresses
	}
	if master := stringField(conf, "master"); master != "" {
		s.prepareNode = func(w *world) error {
			return w.host.Do(func() error { return addVeth(master, "kitup1", nil) })
		}
	}
	s.conf = func(w *world, p *pod) map[string]any {
		m := maps.Clone(conf)
		for _, key := range []string{"type", "name", "cniVersion", "capabilities"} {
			delete(m, key)
		}
		if s.delegates {
			m["ipam"] = w.ipam
		}
		if run := capabilityArgs(conf, p); len(run) > 0 {
			m["runtimeConfig"] = run
		}
		return m
	}
	return s
}

// capabilityArgs returns runtimeConfig for the capabilities that a plugin declares, of those that the kubelet uses.
func capabilityArgs(conf map[string]any, p *pod) map[string]any {
	declared, _ := conf["capabilities"].(map[string]any)
	values := map[string]any{
		"portMappings": []any{map[string]any{"hostPort": hostPort(p), "containerPort": 80, "protocol": "tcp"}},
		"bandwidth": map[string]any{
			"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 8_000_000, "egressBurst": 800_000,
		},
	}
	out := map[string]any{}
	for key, value := range values {
		if declared[key] == true {
			out[key] = value
		}
	}
	return out
}

// listIPAM returns the list's IPAM section for a world, with the world's data directory for host-local.
func listIPAM(w *world, conf map[string]any) map[string]any {
	m := maps.Clone(conf)
	if m["type"] == hostLocal {
		m["dataDir"] = w.data()
	}
	return m
}

func stringField(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

// subjects returns the subjects of a run.
func (c Config) subjects() []*subject {
	if c.List != nil {
		return c.List.subjects()
	}
	return subjects()
}

// programs returns the files of a directory that a run requires: its subjects, or with a list all files, because its
// plugins may delegate to others.
func (c Config) programs() ([]string, error) {
	if c.List == nil {
		return Present(c.BinDir)
	}
	all, err := executables(c.BinDir)
	for _, typ := range c.List.Types() {
		if err == nil && !slices.Contains(all, typ) {
			err = fmt.Errorf("plugin directory %s has no program %s", c.BinDir, typ)
		}
	}
	return all, err
}

// executables returns the names of a directory's programs.
func executables(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("plugin directory: %w", err)
	}
	var out []string
	for _, e := range entries {
		if isProgram(filepath.Join(dir, e.Name())) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}
