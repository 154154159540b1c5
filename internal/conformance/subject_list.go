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

// List is a configuration list of any vendor, whose plugins are judged as it configures them.
type List struct {
	Name    string           `json:"name"`
	Type    string           `json:"type"`
	Plugins []map[string]any `json:"plugins"`
}

// ParseList reads a list, or a single plugin's configuration as a list of one.
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
		typ := text(p, "type")
		if typ == "" {
			return nil, fmt.Errorf("configuration list: plugins[%d] has no type", i)
		}
		if seen[typ] {
			return nil, fmt.Errorf(
				"configuration list: plugins[%d]: a second plugin of type %q; judge each by a list of its own", i, typ,
			)
		}
		seen[typ] = true
	}
	return &l, nil
}

// Types are the list's plugins.
func (l *List) Types() []string {
	var out []string
	for _, p := range l.Plugins {
		out = append(out, text(p, "type"))
	}
	return out
}

// subjects are the list's plugins: the first makes the interface, each other one works on one that the kit makes.
func (l *List) subjects() []*subject {
	var out []*subject
	for i, p := range l.Plugins {
		out = append(out, listed(p, i == 0))
	}
	return out
}

// listed is a plugin as a vendor's list configures it. What its work looks like is not known: chained, it is judged by
// the protocol and by what it leaves behind.
func listed(conf map[string]any, first bool) *subject {
	s := &subject{typ: text(conf, "type"), ifName: "eth0", role: chained, needs: []string{"veth"}}
	if first {
		s.role = maker
	} else {
		s.furnish, s.work = giveInterface, func(*world, *pod) error { return nil }
	}
	if s.typ == "loopback" {
		s.ifName = "lo"
	}
	addresses, _ := conf["ipam"].(map[string]any)
	if s.delegates = text(addresses, "type") != ""; s.delegates {
		s.ipam = addresses
	}
	if master := text(conf, "master"); master != "" {
		s.node = func(w *world) error {
			return w.host.Do(func() error { return pair(master, "kitup1", nil) })
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

// capabilityArgs are what a runtime gives a plugin for the capabilities that it declares, of those that a kubelet uses.
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

// listedAddresses is a list's own ipam section for a world: host-local keeps its files there.
func listedAddresses(w *world, conf map[string]any) map[string]any {
	m := maps.Clone(conf)
	if m["type"] == hostLocal {
		m["dataDir"] = w.data()
	}
	return m
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

// chosen are the subjects of a run.
func (c Config) chosen() []*subject {
	if c.List != nil {
		return c.List.subjects()
	}
	return subjects()
}

// programs are the files of a directory that a run needs: what it judges, and with a list, all, for its plugins may
// execute others.
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

// executables are the names of a directory's programs.
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
