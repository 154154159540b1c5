// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unique"

	"github.com/weft-net/weft/internal/model"
)

// The errors of a store that callers branch on.
var (
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("exists already")
	// ErrConflict: the object was changed since it was read. Read it again.
	ErrConflict = errors.New("changed since it was read")
	// ErrForbidden: the user does not have the right.
	ErrForbidden = errors.New("forbidden")
)

// Key names an object.
type Key struct {
	Group     string `json:"group,omitempty"` // of the apiVersion; empty for the core kinds
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// NodeKey names a node.
func NodeKey(name string) Key { return Key{Kind: "Node", Name: name} }

// PodKey names a pod.
func PodKey(namespace, name string) Key { return Key{Kind: "Pod", Namespace: namespace, Name: name} }

// NamespaceKey names a namespace.
func NamespaceKey(name string) Key { return Key{Kind: "Namespace", Name: name} }

// String is "Kind namespace/name".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// Object is one stored object.
type Object struct {
	Key     Key             `json:"key"`
	Version string          `json:"version"`
	Raw     json.RawMessage `json:"raw"`

	value any // the decoded value, for the kinds that weft uses
}

// Event is a change of an object.
type Event struct {
	Type   EventType
	Object Object // for Deleted: the last version
	Err    error  // for Faulty: the error
}

// EventType is the type of an Event.
type EventType string

// The types of events.
const (
	Added    EventType = "added"
	Modified EventType = "modified"
	Deleted  EventType = "deleted"
	// Synced: all objects that existed when the watch began were sent. It has no object and is sent once.
	Synced EventType = "synced"
	// Faulty: an object or file is invalid; sent once per error.
	Faulty EventType = "faulty"
)

type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// label is a label of RFC 1123.
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// NewObject returns an Object of an object's JSON. It rejects one without apiVersion, kind or a valid name, and an
// invalid Node, Pod or Namespace.
func NewObject(raw []byte) (Object, error) {
	var h header
	if err := json.Unmarshal(raw, &h); err != nil {
		return Object{}, model.Errorf(model.CodeDecode,
			"apiVersion, kind and metadata.name are texts; put quotes around a name like \"on\" or \"1\"", "manifest: %w", err)
	}
	if h.APIVersion == "" {
		return Object{}, missing("apiVersion", `for a Pod write "apiVersion: v1"`)
	}
	if h.Kind == "" {
		return Object{}, missing("kind", `write for example "kind: Pod"`)
	}
	key := Key{Kind: interned(h.Kind), Namespace: interned(h.Metadata.Namespace), Name: h.Metadata.Name}
	if group, _, ok := strings.Cut(h.APIVersion, "/"); ok {
		key.Group = interned(group)
	}
	if key.Name == "" {
		return Object{}, missing("metadata.name", "give the "+h.Kind+" a name")
	}
	if key.Namespace == "" && namespaced(key.Group, key.Kind) {
		key.Namespace = DefaultNamespace
	}
	if err := checkNames(key); err != nil {
		return Object{}, err
	}
	fields, err := decodeFields(raw)
	if err != nil {
		return Object{}, fmt.Errorf("manifest of %s: %w", key, err)
	}
	canonical, err := json.Marshal(fields) // keys sorted, no white space
	if err != nil {
		return Object{}, fmt.Errorf("manifest of %s: %w", key, err)
	}
	sum := sha256.Sum256(canonical)
	o := Object{Key: key, Version: hex.EncodeToString(sum[:8]), Raw: canonical}
	o.value, err = decodeValue(o)
	return o, err
}

// interned returns the text itself, in memory that all equal texts share: thousands of objects have the same kind and the
// same labels.
func interned(text string) string { return unique.Make(text).Value() }

// internedLabels returns the labels of a node with interned texts, but for the value that differs from node to node.
func internedLabels(in map[string]string) map[string]string {
	if in == nil {
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		if k != "kubernetes.io/hostname" {
			v = interned(v)
		}
		out[interned(k)] = v
	}
	return out
}

// decodeFields decodes a document without loss of digits of numbers.
func decodeFields(raw []byte) (fields map[string]any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return fields, dec.Decode(&fields)
}

// decodeValue returns the object as the model's value, nil for a kind that weft does not use.
func decodeValue(o Object) (any, error) {
	switch {
	case o.Is("Node"):
		return o.Node()
	case o.Is("Pod"):
		return o.Pod()
	case o.Is("Namespace"):
		return o.Namespace()
	case o.Key.Of(NetworkAttachments()):
		return o.NetworkAttachment()
	case o.Key.Of(AddressPools()): // an error is reported where the pool is used
		if p, err := o.AddressPool(); err == nil {
			return p, nil
		}
	case o.Key.Of(AddressBlocks()):
		if b, err := o.AddressBlock(); err == nil {
			return b, nil
		}
	case o.Key.Of(NodeEndpoints()):
		if all, err := o.NodeEndpoints(); err == nil {
			return all, nil
		}
	}
	return nil, nil
}

// Is reports whether the object is of that core kind.
func (o Object) Is(kind string) bool { return o.Key.Group == "" && o.Key.Kind == kind }

func missing(field, hint string) error {
	return model.Errorf(model.CodeInvalidConf, hint, "field %s is missing", field)
}

func checkNames(k Key) error {
	const dns = "lower case letters, digits and '-', beginning and ending with a letter or digit, at most %d of them"
	switch {
	case k.Group == "" && (k.Kind == "Pod" || k.Kind == "Node"):
		return model.CheckName(k.Kind+": metadata.name", k.Name)
	case k.Group == "" && k.Kind == "Namespace":
		if len(k.Name) > 63 || !label.MatchString(k.Name) {
			return model.Errorf(model.CodeInvalidConf, fmt.Sprintf(dns, 63),
				"Namespace: metadata.name %q cannot be used", k.Name)
		}
	case k.Name == "." || k.Name == ".." || strings.ContainsAny(k.Name, "/%\x00"):
		return model.Errorf(model.CodeInvalidConf, "leave out '/' and '%'", "%s: metadata.name %q cannot be used",
			k.Kind, k.Name)
	}
	if k.Namespace != "" && (len(k.Namespace) > 63 || !label.MatchString(k.Namespace)) {
		return model.Errorf(model.CodeInvalidConf, fmt.Sprintf(dns, 63), "%s: metadata.namespace %q cannot be used",
			k, k.Namespace)
	}
	return nil
}
