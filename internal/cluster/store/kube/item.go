// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/weft-net/weft/internal/cluster/store"
)

// item is one object, as client-go's reflector passes it.
type item struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	object store.Object
	err    error // the object is invalid
}

// DeepCopyObject makes the item a runtime.Object. Items are immutable, so a shallow copy suffices.
func (i *item) DeepCopyObject() runtime.Object { c := *i; return &c }

// items is a list of items.
type items struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []item
}

// DeepCopyObject makes the list a runtime.Object.
func (l *items) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = append([]item(nil), l.Items...)
	return &c
}

// reduce converts the server's JSON to an object with the needed fields.
type reduce func(raw []byte) (store.Object, error)

// newItem decodes what the reflector needs, and reduces the object. kind is the default for elements of a list.
func newItem(kind store.Kind, raw []byte, keep reduce) (*item, error) {
	var head struct {
		metav1.TypeMeta
		Metadata struct {
			Name            string            `json:"name"`
			Namespace       string            `json:"namespace"`
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("%s of the API server: %w", kind.Kind, err)
	}
	m := head.Metadata
	i := &item{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, ResourceVersion: m.ResourceVersion}}
	i.object, i.err = keep(raw)
	i.object.Key = kind.Key(m.Namespace, m.Name)
	if end, ok := m.Annotations[metav1.InitialEventsAnnotationKey]; ok {
		i.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: end}
	}
	return i, nil
}

// newItems decodes a list.
func newItems(kind store.Kind, raw []byte, keep reduce, shared *Shared) (*items, error) {
	var list struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("list of %s of the API server: %w", kind.Resource, err)
	}
	out := &items{ListMeta: list.Metadata, Items: make([]item, 0, len(list.Items))}
	for _, one := range list.Items {
		i, err := shared.newItem(kind, withKind(kind, one), keep)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, *i)
	}
	return out, nil
}

// withKind adds apiVersion and kind, which elements of a core kind's list leave out.
func withKind(kind store.Kind, raw []byte) []byte {
	var head metav1.TypeMeta
	if json.Unmarshal(raw, &head) == nil && head.Kind != "" || len(raw) < 2 {
		return raw
	}
	version := kind.Version
	if kind.Group != "" {
		version = kind.Group + "/" + version
	}
	return append(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,`, version, kind.Kind), raw[1:]...)
}

// frames decodes the stream of a watch.
type frames struct {
	kind store.Kind
	body io.ReadCloser
	dec  *json.Decoder
	keep reduce
	// shared, which may be nil, decodes objects.
	shared *Shared
}

// Decode reads the next event.
func (f *frames) Decode() (watch.EventType, runtime.Object, error) {
	var frame struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := f.dec.Decode(&frame); err != nil {
		var syntax *json.SyntaxError
		var form *json.UnmarshalTypeError
		if errors.As(err, &syntax) || errors.As(err, &form) {
			return "", nil, fmt.Errorf("watch of %s: %w", f.kind.Resource, err)
		}
		return "", nil, io.EOF // however a connection ends: the watch is resumed
	}
	switch frame.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		i, err := f.shared.newItem(f.kind, frame.Object, f.keep)
		return frame.Type, i, err
	case watch.Bookmark:
		i, err := newItem(f.kind, frame.Object, func([]byte) (store.Object, error) { return store.Object{}, nil })
		return frame.Type, i, err
	case watch.Error:
		status := &metav1.Status{}
		err := json.Unmarshal(frame.Object, status)
		return frame.Type, status, err
	}
	return "", nil, fmt.Errorf("watch of %s: unknown event %q", f.kind.Resource, frame.Type)
}

// Close ends the stream.
func (f *frames) Close() { _ = f.body.Close() }
