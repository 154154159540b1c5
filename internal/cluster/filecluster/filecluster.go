// SPDX-License-Identifier: Apache-2.0

// Package filecluster is a cluster in a directory of manifests: it reads pods, namespaces and network attachments, and
// writes annotations and events.
package filecluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
)

// Cluster reads objects from this node's snapshot or, if they are newer than it, from the files. Annotations and events
// are written into the files.
type Cluster struct {
	Facts *facts.Facts
	Store *dir.Store
	Node  string
	Now   func() time.Time
}

// Pod returns a pod.
func (f Cluster) Pod(ctx context.Context, ref model.PodRef) (model.Pod, error) {
	if c := f.Facts.Cluster(); c != nil {
		i, ok := slices.BinarySearchFunc(c.Pods, ref, func(p model.Pod, r model.PodRef) int {
			return strings.Compare(p.Namespace+"\x00"+p.Name, r.Namespace+"\x00"+r.Name)
		})
		if ok && (ref.UID == "" || ref.UID == c.Pods[i].UID) {
			return c.Pods[i], nil
		}
	}
	o, err := f.get(ctx, store.PodKey(ref.Namespace, ref.Name))
	if err != nil {
		return model.Pod{}, err
	}
	p, err := o.Pod()
	if err == nil && ref.UID != "" && ref.UID != p.UID {
		err = fmt.Errorf("pod %s with uid %s: %w", ref, ref.UID, store.ErrNotFound)
	}
	return p, err
}

// Network returns the network of that name.
func (f Cluster) Network(ctx context.Context, namespace, name string) (model.NetworkAttachment, error) {
	if c := f.Facts.Cluster(); c != nil {
		for _, n := range c.Networks {
			if n.Namespace == namespace && n.Name == name {
				return n, nil
			}
		}
	}
	o, err := f.get(ctx, store.NetworkAttachments().Key(namespace, name))
	if err != nil {
		return model.NetworkAttachment{}, err
	}
	return o.NetworkAttachment()
}

// Namespace returns the namespace of that name.
func (f Cluster) Namespace(ctx context.Context, name string) (model.Namespace, error) {
	if c := f.Facts.Cluster(); c != nil {
		i, ok := slices.BinarySearchFunc(c.Namespaces, name, func(n model.Namespace, name string) int {
			return strings.Compare(n.Name, name)
		})
		if ok {
			return c.Namespaces[i], nil
		}
	}
	o, err := f.get(ctx, store.NamespaceKey(name))
	if err != nil {
		return model.Namespace{}, err
	}
	return o.Namespace()
}

func (f Cluster) get(ctx context.Context, key store.Key) (store.Object, error) {
	if err := ctx.Err(); err != nil {
		return store.Object{}, fmt.Errorf("%s: %w", key, err)
	}
	return f.Store.Get(key)
}

// Annotate writes a pod's annotations.
func (f Cluster) Annotate(ctx context.Context, pod model.PodRef, annotations map[string]string) error {
	_, err := f.Store.Modify(ctx, store.PodKey(pod.Namespace, pod.Name), func(fields map[string]any) error {
		meta, _ := fields["metadata"].(map[string]any)
		if uid, _ := meta["uid"].(string); pod.UID != "" && uid != "" && uid != pod.UID {
			return nil // another pod of that name
		}
		return store.Annotate(annotations)(fields)
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// Event writes an event of a pod. Repeated events are counted.
func (f Cluster) Event(ctx context.Context, pod model.PodRef, e model.Event) error {
	typ := "Normal"
	if e.Warning {
		typ = "Warning"
	}
	sum := sha256.Sum256([]byte(pod.UID + "\x00" + e.Reason + "\x00" + e.Message))
	now := f.Now().UTC().Format(time.RFC3339)
	key := store.Key{Kind: "Event", Namespace: pod.Namespace, Name: pod.Name + "." + hex.EncodeToString(sum[:8])}
	_, err := f.Store.Modify(ctx, key, func(fields map[string]any) error {
		n, _ := fields["count"].(json.Number)
		count, _ := n.Int64()
		fields["count"], fields["lastTimestamp"] = count+1, now
		return nil
	})
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Event", "type": typ, "reason": e.Reason, "message": e.Message, "count": 1,
		"metadata": map[string]any{"namespace": key.Namespace, "name": key.Name},
		"involvedObject": map[string]any{
			"apiVersion": "v1", "kind": "Pod", "namespace": pod.Namespace, "name": pod.Name, "uid": pod.UID,
		},
		"source": map[string]any{"component": "weft", "host": f.Node}, "firstTimestamp": now, "lastTimestamp": now,
	})
	if err != nil {
		return fmt.Errorf("event of pod %s: %w", pod, err)
	}
	o, err := store.NewObject(raw)
	if err == nil {
		_, err = f.Store.Create(ctx, o)
	}
	return err
}
