// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Environment describes where a configuration will be used: what exists besides weft's built-in types.
type Environment struct {
	// Name and Version are the defaults of a configuration without them, for example from the object that holds it; may be
	// empty.
	Name, Version string
	// Dirs are the runtime's plugin directories; Find reports whether one of them has a program of that name.
	Dirs []string
	Find func(program string) bool
	// Remote: the directories are those of other hosts, Find is not asked. Only types that resemble one of weft's get a
	// finding, a warning.
	Remote bool
	// NeedAgent are the types that only weft's agent serves; Attached: the agent itself attaches this network.
	NeedAgent []string
	Attached  bool
}

// named is a type that a configuration names.
type named struct {
	where, field, typ string
	delegated         bool // it is in a network that the agent attaches
}

// CheckTypes adds findings about the configuration's types to the report: those that are neither built in nor a program
// in Dirs, and those that only the agent serves.
func (r *Report) CheckTypes(s Environment, builtin []string) {
	for _, n := range r.named {
		if slices.Contains(builtin, n.typ) {
			if slices.Contains(s.NeedAgent, n.typ) && !n.delegated && !s.Attached {
				r.Warnings = append(r.Warnings, Warning{
					Where: n.where, Field: n.field, Msg: fmt.Sprintf("%s %q is served by weft's agent only", n.field, n.typ),
					Hint: "put the list among the delegates of a plugin weft-cni, as `weft install` does",
				})
			}
			continue
		}
		if s.Remote {
			r.drop(n)
			if near := nearest(n.typ, builtin); near != "" {
				r.Warnings = append(r.Warnings, Warning{
					Where: n.where, Field: n.field, Msg: fmt.Sprintf("%s %q is none of weft's own", n.field, n.typ),
					Hint: "did you mean " + near + "? Otherwise install a program of that name on each node",
				})
			}
			continue
		}
		if s.Find(n.typ) {
			continue
		}
		r.drop(n)
		if near := nearest(n.typ, builtin); near != "" {
			r.Errors = append(r.Errors, Problem{
				Where: n.where, Code: model.CodeInvalidConf, Msg: fmt.Sprintf("%s %q: no such plugin", n.field, n.typ),
				Hint: "did you mean " + near + "?",
			})
			continue
		}
		r.Warnings = append(r.Warnings, Warning{
			Where: n.where, Field: n.field,
			Msg:  fmt.Sprintf("%s %q is none of weft's own, and no program in %s", n.field, n.typ, strings.Join(s.Dirs, ", ")),
			Hint: "install it there, or name its directory with --cni-bin-dir",
		})
	}
}

// drop removes the warning that a type is executed as a program, which a finding replaces.
func (r *Report) drop(n named) {
	r.Warnings = slices.DeleteFunc(r.Warnings, func(w Warning) bool { return w.Where == n.where && w.Field == n.field })
}

// Programs returns the types in the configuration that are none of these.
func (r *Report) Programs(builtin []string) []string {
	var out []string
	for _, n := range r.named {
		if !slices.Contains(builtin, n.typ) && !slices.Contains(out, n.typ) {
			out = append(out, n.typ)
		}
	}
	return out
}

// setDefaults sets the name and the version of a network without them, as the agent does; empty defaults are ignored.
func setDefaults(raw []byte, name, version string) ([]byte, error) {
	o, err := parseObject(networkNoun, raw)
	if err != nil {
		return nil, err
	}
	missing := func(key string) bool { return o[key] == nil || string(o[key]) == `""` }
	before := len(o)
	if name != "" && missing("name") {
		err = o.set("name", name)
	}
	if err == nil && version != "" && missing("cniVersion") && o["cniVersions"] == nil {
		err = o.set("cniVersion", version)
	}
	if err != nil || len(o) == before {
		return raw, err
	}
	return o.raw()
}
