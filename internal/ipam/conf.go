// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Decode decodes a part of a configuration. field names it in the error; a value of the wrong type is named with its
// own path.
func Decode(field string, raw json.RawMessage, v any) error {
	if len(raw) == 0 {
		return nil
	}
	err := json.Unmarshal(raw, v)
	if err == nil {
		return nil
	}
	var fault *model.Error
	if errors.As(err, &fault) {
		return fault
	}
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		name := strings.Trim(field+"."+typ.Field, ".")
		return model.Errorf(model.CodeDecode, "", "configuration: %s is %s, want %s", name, typ.Value, kind(typ.Type))
	}
	return model.Errorf(model.CodeDecode, "", "configuration: %s: %w", field, err)
}

// kind names a type in JSON's terms.
func kind(t reflect.Type) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "string"
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "list"
	}
	return t.String()
}

// Invalid is the error for a setting that cannot be used.
func Invalid(hint, format string, args ...any) error {
	return model.Errorf(model.CodeInvalidConf, hint, format, args...)
}

// CheckArgs rejects unknown CNI_ARGS keys, unless IgnoreUnknown is set. The keys of Kubernetes' runtimes are known.
func CheckArgs(args [][2]string) error {
	var unknown []string
	ignore := false
	for _, kv := range args {
		switch kv[0] {
		case "IgnoreUnknown":
			ignore = kv[1] == "1" || strings.EqualFold(kv[1], "true")
		case "IP", "GATEWAY", "MAC":
		default:
			if !strings.HasPrefix(kv[0], "K8S_POD_") {
				unknown = append(unknown, kv[0])
			}
		}
	}
	if len(unknown) == 0 || ignore {
		return nil
	}
	return model.Errorf(model.CodeInvalidEnv, "add IgnoreUnknown=1 to have them ignored",
		"environment: CNI_ARGS: unknown keys %q", strings.Join(unknown, ", "))
}

// Arg returns the value of the last pair of that name.
func Arg(args [][2]string, name string) string {
	value := ""
	for _, kv := range args {
		if kv[0] == name {
			value = kv[1]
		}
	}
	return value
}

// Routes are the routes of a configuration.
type Routes []model.Route

// UnmarshalJSON names the field of a route that cannot be decoded, with its value.
func (r *Routes) UnmarshalJSON(b []byte) error {
	var all []json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*r = nil
	for i, raw := range all {
		var words struct{ Dst, GW any }
		var route model.Route
		err := json.Unmarshal(raw, &route)
		if err == nil {
			*r = append(*r, route)
			continue
		}
		_ = json.Unmarshal(raw, &words) // what can be said of it
		if text, ok := words.Dst.(string); ok && route.Dst.UnmarshalText([]byte(text)) != nil {
			return Invalid("a prefix, for example 10.2.0.0/16", "ipam.routes[%d].dst %q is no prefix", i, text)
		}
		if text, ok := words.GW.(string); ok && route.GW.UnmarshalText([]byte(text)) != nil {
			return Invalid("an address, for example 10.1.0.1", "ipam.routes[%d].gw %q is no address", i, text)
		}
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) && typ.Field != "" {
			return model.Errorf(model.CodeDecode, "", "ipam.routes[%d].%s is %s, want %s", i, typ.Field, typ.Value,
				kind(typ.Type))
		}
		return model.Errorf(model.CodeDecode, "", "ipam.routes[%d]: %w", i, err)
	}
	return nil
}

// Check rejects routes that the kernel would reject: those with host bits for IPv4 only.
func (r Routes) Check() error {
	for i, route := range r {
		if !route.Dst.IsValid() {
			return Invalid("a prefix, for example 10.2.0.0/16", "ipam.routes[%d].dst is missing", i)
		}
		if route.Dst.Addr().Is4() && route.Dst.Masked() != route.Dst {
			return Invalid("write "+route.Dst.Masked().String(), "ipam.routes[%d].dst %s has host bits set", i, route.Dst)
		}
		if route.GW.IsValid() && route.GW.Is4() != route.Dst.Addr().Is4() {
			return Invalid("a route's gateway has the family of its destination",
				"ipam.routes[%d]: dst %s and gw %s are of different families", i, route.Dst, route.GW)
		}
		if key, value, most := route.OutOfRange(); key != "" {
			return Invalid("leave it out for the kernel's own", "ipam.routes[%d].%s %d is not between 0 and %d", i, key, value,
				most)
		}
	}
	return nil
}

// Warnings returns destinations with host bits.
func (r Routes) Warnings() []model.Warning {
	var out []model.Warning
	for i, route := range r {
		if network := route.Dst.Masked(); network != route.Dst {
			field := fmt.Sprintf("ipam.routes[%d].dst", i)
			out = append(out, model.Warning{
				Field: field, Msg: fmt.Sprintf("%s %s has host bits set: the route is to %s", field, route.Dst, network),
				Hint: "write " + network.String(),
			})
		}
	}
	return out
}

// ParseAddr reads an address that may carry a prefix length, as the conventions for "ips" permit.
func ParseAddr(s string) (netip.Addr, error) {
	s = strings.TrimSpace(s)
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr().Unmap(), nil
	}
	a, err := netip.ParseAddr(s)
	return a.Unmap(), err
}

// OnePerFamily refuses several addresses of a family where the version of the specification had no room for them.
func OnePerFamily(cniVersion string, v4, v6 int) error {
	if v4 <= 1 && v6 <= 1 || cniVersion != "" && cniVersion != "0.1.0" && cniVersion != "0.2.0" {
		return nil
	}
	return Invalid("use cniVersion 0.3.0 or newer",
		"cniVersion %q does not support more than one address per family (%d IPv4, %d IPv6)", cniVersion, v4, v6)
}
