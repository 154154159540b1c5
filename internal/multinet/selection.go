// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// Selection is one network that a pod requests, and its settings (NetworkSelectionElement in the Multus sources). The
// keys are the standard's.
type Selection struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Interface string `json:"interface,omitempty"`
	// OldInterface is Interface under its name of Multus 3.1.
	OldInterface   string          `json:"interfaceRequest,omitempty"`
	IPs            []string        `json:"ips,omitempty"` // with or without a prefix length
	MAC            string          `json:"mac,omitempty"`
	InfinibandGUID string          `json:"infiniband-guid,omitempty"`
	PortMappings   json.RawMessage `json:"portMappings,omitempty"`
	Bandwidth      json.RawMessage `json:"bandwidth,omitempty"`
	DeviceID       string          `json:"deviceID,omitempty"`
	CNIArgs        map[string]any  `json:"cni-args,omitempty"`
	// DefaultRoute are the gateways of the pod's default routes; nil: they are unchanged.
	DefaultRoute []netip.Addr `json:"default-route,omitempty"`
	// Claim names the IPAMClaim that has the addresses.
	Claim string `json:"ipam-claim-reference,omitempty"`
}

// Network is "namespace/name".
func (s Selection) Network() string { return s.Namespace + "/" + s.Name }

// maxSelections bounds how many networks a pod may request.
const maxSelections = 63

// ParseSelections parses an annotation in either of its forms: comma-separated names, or a JSON list. key is the
// annotation's, for errors; namespace is that of networks that name none. The warnings are about unknown keys.
func ParseSelections(key, text, namespace string) (list []Selection, warnings []string, err error) {
	noun := "annotation " + key
	if !utf8.ValidString(text) {
		return nil, nil, model.Errorf(model.CodeDecode, "", "%s is no UTF-8", noun)
	}
	if strings.ContainsAny(text, `[{"`) {
		list, warnings, err = parseJSON(noun, text)
	} else {
		list, err = parseNames(noun, text)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(list) > maxSelections {
		return nil, nil, model.Errorf(model.CodeInvalidConf, "", "%s: %d networks, at most %d", noun, len(list),
			maxSelections)
	}
	for i := range list {
		s := &list[i]
		if s.Namespace == "" {
			s.Namespace = namespace
		}
		if s.Interface == "" {
			s.Interface = s.OldInterface
		}
		s.OldInterface = ""
		if err := s.check(); err != nil {
			return nil, nil, within(err, fmt.Sprintf("%s: element %d", noun, i+1))
		}
	}
	return list, warnings, checkDistinct(noun, list)
}

// parseNames reads "[namespace/]name[@interface],…".
func parseNames(noun, text string) ([]Selection, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var list []Selection
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		var s Selection
		name := item
		if before, after, ok := strings.Cut(name, "/"); ok {
			s.Namespace, name = strings.TrimSpace(before), after
			if s.Namespace == "" {
				return nil, malformed(noun, item)
			}
		}
		if before, after, ok := strings.Cut(name, "@"); ok {
			name, s.Interface = before, strings.TrimSpace(after)
			if s.Interface == "" {
				return nil, malformed(noun, item)
			}
		}
		s.Name = strings.TrimSpace(name)
		if s.Name == "" || strings.ContainsAny(s.Name, "/@") || strings.ContainsAny(s.Interface, "/@") {
			return nil, malformed(noun, item)
		}
		list = append(list, s)
	}
	return list, nil
}

func malformed(noun, item string) error {
	return model.Errorf(
		model.CodeInvalidConf, "write [namespace/]name[@interface], with commas between them, or a JSON list",
		"%s: %q cannot be read", noun, item)
}

// parseJSON reads a list of objects.
func parseJSON(noun, text string) ([]Selection, []string, error) {
	var raw []json.RawMessage
	if err := cni.Decode(noun, []byte(text), &raw); err != nil {
		return nil, nil, err
	}
	list := make([]Selection, 0, len(raw))
	var warnings []string
	for i, r := range raw {
		where := fmt.Sprintf("%s: element %d", noun, i+1)
		if bytes.Equal(bytes.TrimSpace(r), []byte("null")) {
			return nil, nil, model.Errorf(model.CodeDecode, "", "%s is null, want object", where)
		}
		var s Selection
		if err := decodeSelection(where, r, &s); err != nil {
			return nil, nil, err
		}
		var keys map[string]json.RawMessage
		_ = json.Unmarshal(r, &keys) // was read just now
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if d := warnKey(k); d != "" {
				warnings = append(warnings, where+": "+d)
			}
		}
		list = append(list, s)
	}
	return list, warnings, nil
}

// decodeSelection decodes a selection; its error names the field.
func decodeSelection(where string, raw json.RawMessage, s *Selection) error {
	err := json.Unmarshal(raw, s)
	if err == nil || errors.As(err, new(*json.UnmarshalTypeError)) || errors.As(err, new(*json.SyntaxError)) {
		return cni.Decode(where, raw, s)
	}
	// netip's error has the value, and not the field.
	var routes struct {
		Gateways []string `json:"default-route"`
	}
	_ = json.Unmarshal(raw, &routes) // is a list of texts, or the error were another
	for _, text := range routes.Gateways {
		if _, bad := netip.ParseAddr(text); bad != nil {
			return model.Errorf(model.CodeDecode, `gateways are addresses, as ["10.1.0.1"]`,
				"%s: default-route: %q is no address", where, text)
		}
	}
	return model.Errorf(model.CodeDecode, "", "%s: %w", where, err)
}

func selectionKeys() []string {
	return []string{
		"name", "namespace", "interface", "interfaceRequest", "ips", "mac", "infiniband-guid", "portMappings",
		"bandwidth", "deviceID",
		"cni-args", "default-route", "ipam-claim-reference",
	}
}

// warnKey returns the warning about a key; keys that are not the standard's are reverse domain names.
func warnKey(key string) string {
	known := selectionKeys()
	if strings.Contains(key, ".") || slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) }) {
		return ""
	}
	if near := cni.Nearest(key, known); near != "" {
		return fmt.Sprintf("key %q is unknown, is %q meant?", key, near)
	}
	return fmt.Sprintf("key %q is unknown", key)
}

// check rejects invalid values.
func (s *Selection) check() error {
	if s.Name == "" {
		return model.Errorf(model.CodeInvalidConf, "name a NetworkAttachmentDefinition", "name is missing")
	}
	if err := errors.Join(model.CheckName("name", s.Name), model.CheckName("namespace", s.Namespace)); err != nil {
		return err
	}
	if s.Interface != "" {
		if err := cni.CheckIfName(s.Interface); err != nil {
			return model.Errorf(model.CodeInvalidConf, "", "interface %w", err)
		}
	}
	for _, text := range s.IPs {
		if _, err := parseIP(text); err != nil {
			return model.Errorf(model.CodeInvalidConf, `write for example "10.1.2.3/24" or "10.1.2.3"`,
				"ips: %q is no address", text)
		}
	}
	if _, err := net.ParseMAC(s.MAC); s.MAC != "" && err != nil {
		return model.Errorf(model.CodeInvalidConf, `write for example "02:00:00:00:00:01"`, "mac %q is no MAC address", s.MAC)
	}
	if _, err := net.ParseMAC(s.InfinibandGUID); s.InfinibandGUID != "" && err != nil {
		return model.Errorf(model.CodeInvalidConf, "eight bytes with colons between them", "infiniband-guid %q is no GUID",
			s.InfinibandGUID)
	}
	if s.Claim != "" && len(s.IPs) > 0 {
		return model.Errorf(model.CodeInvalidConf, "leave one of them out", "ips and ipam-claim-reference exclude each other")
	}
	for _, gw := range s.DefaultRoute {
		if !gw.IsValid() || gw.IsUnspecified() || gw.Zone() != "" {
			return model.Errorf(model.CodeInvalidConf, "", "default-route: %q cannot be a gateway", gw)
		}
	}
	return s.checkObjects()
}

// checkObjects checks the values that are passed on unchanged.
func (s *Selection) checkObjects() error {
	var ports []struct {
		HostPort      int    `json:"hostPort"`
		ContainerPort int    `json:"containerPort"`
		Protocol      string `json:"protocol"`
		HostIP        string `json:"hostIP"`
	}
	if len(s.PortMappings) > 0 {
		if err := cni.Decode("portMappings", s.PortMappings, &ports); err != nil {
			return err
		}
	}
	var rates struct{ IngressRate, IngressBurst, EgressRate, EgressBurst uint64 }
	if len(s.Bandwidth) > 0 {
		return cni.Decode("bandwidth", s.Bandwidth, &rates)
	}
	return nil
}

func parseIP(text string) (netip.Addr, error) {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		return p.Addr().Unmap(), err
	}
	a, err := netip.ParseAddr(text)
	if err == nil && a.Zone() != "" {
		err = errors.New("it has a zone")
	}
	return a.Unmap(), err
}

// within prefixes an error with its place.
func within(err error, where string) error {
	var f *model.Error
	if errors.As(err, &f) {
		return &model.Error{Code: f.Code, Msg: where + ": " + f.Msg, Hint: f.Hint, Err: f.Err}
	}
	return fmt.Errorf("%s: %w", where, err)
}
