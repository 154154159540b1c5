// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/multinet"
)

// ObjectsFile is the file of a directory of bundles with the cluster's Services, EndpointSlices and pods, as far as an
// explanation needs them.
const ObjectsFile = "objects.json"

// Objects reads objects of a cluster.
type Objects interface {
	Get(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error)
	List(ctx context.Context, kind store.Kind) ([]store.Object, error)
}

// recorded are the objects of an ObjectsFile.
type recorded struct {
	Items []json.RawMessage `json:"items"`
}

// recordedObject is what is recorded of a pod, a Service or an EndpointSlice: what an explanation needs, and nothing that
// may be secret, as the environment of a pod.
type recordedObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace   string            `json:"namespace,omitempty"`
		Name        string            `json:"name"`
		UID         string            `json:"uid,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec struct {
		NodeName              string              `json:"nodeName,omitempty"`
		HostNetwork           bool                `json:"hostNetwork,omitempty"`
		Containers            []recordedContainer `json:"containers,omitempty"`
		InitContainers        []recordedContainer `json:"initContainers,omitempty"`
		ClusterIPs            []string            `json:"clusterIPs,omitempty"`
		InternalTrafficPolicy string              `json:"internalTrafficPolicy,omitempty"`
		ExternalTrafficPolicy string              `json:"externalTrafficPolicy,omitempty"`
		Ports                 json.RawMessage     `json:"ports,omitempty"`
	} `json:"spec,omitzero"`
	Status struct {
		Phase string `json:"phase,omitempty"`
	} `json:"status,omitzero"`
	Endpoints json.RawMessage `json:"endpoints,omitempty"`
	Ports     json.RawMessage `json:"ports,omitempty"`
}

type recordedContainer struct {
	RestartPolicy string          `json:"restartPolicy,omitempty"`
	Ports         json.RawMessage `json:"ports,omitempty"`
}

// record returns what is recorded of an object.
func record(kind store.Kind, o store.Object) (json.RawMessage, error) {
	var part recordedObject
	if err := json.Unmarshal(o.Raw, &part); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Key, err)
	}
	part.APIVersion, part.Kind = strings.TrimPrefix(kind.Group+"/"+kind.Version, "/"), kind.Kind
	m := &part.Metadata
	m.Labels, m.Annotations = only(m.Labels, store.ServiceNameLabel), only(m.Annotations, multinet.DomainKey)
	return json.Marshal(part)
}

// only returns the entry of a key.
func only(in map[string]string, key string) map[string]string {
	if v, ok := in[key]; ok {
		return map[string]string{key: v}
	}
	return nil
}

// writeObjects records a cluster's objects in a file of root.
func writeObjects(ctx context.Context, objects Objects, root *os.Root) error {
	var out recorded
	for _, kind := range []store.Kind{store.Services(), store.EndpointSlices(), store.Pods()} {
		all, err := objects.List(ctx, kind)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.Resource, err)
		}
		for _, o := range all {
			raw, err := record(kind, o)
			if err != nil {
				return err
			}
			out.Items = append(out.Items, raw)
		}
	}
	f, err := root.OpenFile(ObjectsFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	return errors.Join(json.NewEncoder(f).Encode(out), f.Close())
}

// recordedObjects are the objects of an ObjectsFile.
type recordedObjects map[store.Key]store.Object

// Get returns an object.
func (m recordedObjects) Get(_ context.Context, _ store.Kind, key store.Key) (store.Object, error) {
	o, ok := m[key]
	if !ok {
		return o, fmt.Errorf("%s: %w", key, store.ErrNotFound)
	}
	return o, nil
}

// List returns the objects of a kind.
func (m recordedObjects) List(_ context.Context, kind store.Kind) (out []store.Object, err error) {
	for key, o := range m {
		if key.Of(kind) {
			out = append(out, o)
		}
	}
	return out, nil
}

// decodeObjects decodes an ObjectsFile.
func decodeObjects(r io.Reader) (Objects, error) {
	var in recorded
	if err := json.NewDecoder(r).Decode(&in); err != nil {
		return nil, err
	}
	out := recordedObjects{}
	for _, raw := range in.Items {
		o, err := store.NewObject(raw)
		if err != nil {
			return nil, err
		}
		out[o.Key] = o
	}
	return out, nil
}
