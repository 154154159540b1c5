// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// shared are the keys that all interface plugins have in common.
type shared struct {
	IPAM json.RawMessage `json:"ipam"`
	DNS  json.RawMessage `json:"dns"`
}

// commonKeys returns the keys that every plugin's configuration may have. The keys below args and runtimeConfig are the
// runtime's.
func commonKeys() []string {
	return []string{"cniVersion", "name", "type", "capabilities.*", "args.*", "runtimeConfig.*", "prevResult.*"}
}

// interfaceKeys returns the keys of a plugin that creates the container's interface.
func interfaceKeys(more ...string) []string {
	keys := append(commonKeys(), "ipam.*", "dns.nameservers[]", "dns.domain", "dns.search[]", "dns.options[]")
	return append(keys, more...)
}

// decode parses a plugin's configuration. The error names a value of the wrong type by its key.
func decode(conf model.PluginConf, v any) error { return decodeAt(conf, "", conf.Raw, v) }

// decodeAt parses the part of a configuration below a key.
func decodeAt(conf model.PluginConf, key string, text []byte, v any) error {
	err := json.Unmarshal(text, v)
	if err == nil {
		return nil
	}
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		field := strings.Trim(key+"."+jsonPath(v, typ.Field), ".")
		return model.Errorf(model.CodeDecode, "", "plugin %s: %s is %s, want %s", conf.Type, field, typ.Value,
			kindOf(typ.Type))
	}
	return model.Errorf(model.CodeDecode, "", "plugin %s: %s: %w", conf.Type, cmp.Or(key, "configuration"), err)
}

// jsonPath returns the path to a field without the names of embedded structs, which encoding/json adds and no user has
// written.
func jsonPath(v any, path string) string {
	t := reflect.TypeOf(v).Elem()
	for t.Kind() == reflect.Struct {
		head, rest, _ := strings.Cut(path, ".")
		f, ok := t.FieldByName(head)
		if !ok || !f.Anonymous {
			break
		}
		path, t = rest, f.Type
	}
	return path
}

// kindOf returns the JSON name of the wanted type.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "list"
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Pointer:
		return kindOf(t.Elem())
	}
	return t.String()
}

// ipamSection returns the ipam object if it names a type.
func ipamSection(conf model.PluginConf) ([]byte, error) {
	var c shared
	if err := decode(conf, &c); err != nil {
		return nil, err
	}
	if len(c.IPAM) == 0 || string(c.IPAM) == "null" {
		return nil, nil
	}
	var section struct {
		Type string `json:"type"`
	}
	if err := decodeAt(conf, "ipam", c.IPAM, &section); err != nil {
		return nil, err
	}
	if section.Type == "" {
		return nil, nil
	}
	return c.IPAM, nil
}

// Decoded is a configuration that its planner has parsed and validated. It is immutable and can be used for any number
// of calls.
type Decoded struct {
	own any // the planner's own type
	dns dnsSection
}

// Decode parses and validates a configuration once for all calls of its planner.
func Decode(p Planner, conf model.PluginConf) (*Decoded, error) {
	if err := rejectDAD(p, conf); err != nil {
		return nil, err
	}
	own, err := p.Decode(conf)
	if err != nil {
		return nil, err
	}
	return &Decoded{own: own, dns: readDNS(conf)}, nil
}

// Validate returns the error of a configuration that can never be planned.
func Validate(p Planner, conf model.PluginConf) error {
	_, err := Decode(p, conf)
	return err
}

// decoded returns the input's parsed configuration, or parses it.
func decoded[C any](in Input, read func(model.PluginConf) (C, error)) (C, error) {
	if in.Decoded != nil {
		if c, ok := in.Decoded.own.(C); ok {
			return c, nil
		}
	}
	return read(in.Conf)
}

// dnsSection is the DNS configuration of a plugin.
type dnsSection struct {
	dns model.DNS
	set bool // any key has a value
	err error
}

// overrideDNS replaces IPAM's DNS configuration if the plugin's configuration has one.
func (in Input) overrideDNS(result *model.Result) error {
	var section dnsSection
	if in.Decoded != nil {
		section = in.Decoded.dns
	} else {
		section = readDNS(in.Conf)
	}
	if section.set {
		result.DNS = section.dns
	}
	return section.err
}

// readDNS parses the configuration's dns key.
func readDNS(conf model.PluginConf) (s dnsSection) {
	var c shared
	if s.err = decode(conf, &c); s.err != nil || len(c.DNS) == 0 {
		return s
	}
	var fields map[string]json.RawMessage
	if s.err = decodeAt(conf, "dns", c.DNS, &fields); s.err != nil {
		return s
	}
	if s.err = decodeAt(conf, "dns", c.DNS, &s.dns); s.err != nil {
		return s
	}
	for _, value := range fields {
		s.set = s.set || string(value) != "null" && string(value) != `""`
	}
	return s
}

// checkMTU rejects an MTU that no link can have.
func checkMTU(conf model.PluginConf, mtu int) error {
	const least, most = 68, 65535
	if mtu == 0 || mtu >= least && mtu <= most {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, "0 leaves it to the kernel", "plugin %s: mtu %d is not between %d and %d",
		conf.Type, mtu, least, most)
}

// checkArgs rejects unknown CNI_ARGS keys, unless IgnoreUnknown is set.
func checkArgs(r model.Request) error {
	if v, _ := r.Arg("IgnoreUnknown"); v == "1" || strings.EqualFold(v, "true") {
		return nil
	}
	known := []string{"IgnoreUnknown", "IP", "GATEWAY", "MAC"}
	for _, kv := range r.Args {
		if !slices.Contains(known, kv[0]) && !strings.HasPrefix(kv[0], "K8S_POD_") {
			return model.Errorf(model.CodeInvalidEnv, "add IgnoreUnknown=1 to have it ignored",
				"environment: CNI_ARGS: unknown key %q", kv[0])
		}
	}
	return nil
}
