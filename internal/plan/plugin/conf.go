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

// shared are the keys that every interface plugin reads the same way.
type shared struct {
	IPAM json.RawMessage `json:"ipam"`
	DNS  json.RawMessage `json:"dns"`
}

// commonKeys are the keys that every plugin's configuration may have. Below args and runtimeConfig everything is the
// runtime's.
func commonKeys() []string {
	return []string{"cniVersion", "name", "type", "capabilities.*", "args.*", "runtimeConfig.*", "prevResult.*"}
}

// interfaceKeys are the further keys of the plugins that make the container's interface.
func interfaceKeys(more ...string) []string {
	keys := append(commonKeys(), "ipam.*", "dns.nameservers[]", "dns.domain", "dns.search[]", "dns.options[]")
	return append(keys, more...)
}

// decode reads a plugin's configuration; what is of the wrong type is named.
func decode(conf model.PluginConf, v any) error { return decodeAt(conf, "", conf.Raw, v) }

// decodeAt reads the part of a configuration that stands under a key.
func decodeAt(conf model.PluginConf, key string, text []byte, v any) error {
	err := json.Unmarshal(text, v)
	if err == nil {
		return nil
	}
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		field := strings.Trim(key+"."+jsonPath(v, typ.Field), ".")
		return model.Faultf(model.CodeDecode, "", "plugin %s: %s is %s, want %s", conf.Type, field, typ.Value,
			kindOf(typ.Type))
	}
	return model.Faultf(model.CodeDecode, "", "plugin %s: %s: %w", conf.Type, cmp.Or(key, "configuration"), err)
}

// jsonPath is a path to a field without the names of embedded structs, which encoding/json puts before it and nobody
// has written down.
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

// kindOf names what a field wants, not by Go's names of lists and objects.
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

// ipamSection is the ipam object when it names a type.
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

// Decoded is a configuration that its planner has read and found good. Nobody changes it, so that it serves any number
// of calls.
type Decoded struct {
	own any // the planner's form of it
	dns dnsSection
}

// Decode has a planner read a configuration, once for all that it is asked about it.
func Decode(p Planner, conf model.PluginConf) (*Decoded, error) {
	own, err := p.Decode(conf)
	if err != nil {
		return nil, err
	}
	return &Decoded{own: own, dns: readDNS(conf)}, nil
}

// Validate refuses a configuration that can never be planned.
func Validate(p Planner, conf model.PluginConf) error {
	_, err := p.Decode(conf)
	return err
}

// decoded is the input's configuration as its planner's read makes it.
func decoded[C any](in Input, read func(model.PluginConf) (C, error)) (C, error) {
	if in.Decoded != nil {
		if c, ok := in.Decoded.own.(C); ok {
			return c, nil
		}
	}
	return read(in.Conf)
}

// dnsSection is what a configuration says about name resolution.
type dnsSection struct {
	dns  model.DNS
	said bool // whether it says anything
	err  error
}

// overrideDNS replaces what IPAM says about name resolution when the configuration says anything.
func (in Input) overrideDNS(result *model.Result) error {
	var section dnsSection
	if in.Decoded != nil {
		section = in.Decoded.dns
	} else {
		section = readDNS(in.Conf)
	}
	if section.said {
		result.DNS = section.dns
	}
	return section.err
}

// readDNS reads the configuration's dns.
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
		s.said = s.said || string(value) != "null" && string(value) != `""`
	}
	return s
}

// checkMTU refuses what no link can have.
func checkMTU(conf model.PluginConf, mtu int) error {
	const least, most = 68, 65535
	if mtu == 0 || mtu >= least && mtu <= most {
		return nil
	}
	return model.Faultf(model.CodeInvalidConf, "0 leaves it to the kernel", "plugin %s: mtu %d is not between %d and %d",
		conf.Type, mtu, least, most)
}

// checkArgs refuses CNI_ARGS keys that nobody knows, unless IgnoreUnknown is set.
func checkArgs(r model.Request) error {
	if v, _ := r.Arg("IgnoreUnknown"); v == "1" || strings.EqualFold(v, "true") {
		return nil
	}
	known := []string{"IgnoreUnknown", "IP", "GATEWAY", "MAC"}
	for _, kv := range r.Args {
		if !slices.Contains(known, kv[0]) && !strings.HasPrefix(kv[0], "K8S_POD_") {
			return model.Faultf(model.CodeInvalidEnv, "add IgnoreUnknown=1 to have it ignored",
				"environment: CNI_ARGS: unknown key %q", kv[0])
		}
	}
	return nil
}
