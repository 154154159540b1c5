// SPDX-License-Identifier: Apache-2.0

package nodebgp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// objects are the manifests of BGP's kinds, and the passwords that they need.
type objects struct {
	cfg    Config
	synced bool
	raw    map[store.Key]json.RawMessage
	// passwords are those that exist, by wire.SecretName.
	passwords map[string]string
}

// put applies an event. Of an object that the store cannot read the last version stays.
func (o *objects) put(e store.Event) {
	switch e.Type {
	case store.Synced:
		o.synced = true
	case store.Deleted:
		delete(o.raw, e.Object.Key)
	case store.Faulty:
		o.cfg.Log.Warn("object of BGP is invalid; its last version is used, if any", "err", e.Err)
	default:
		o.raw[e.Object.Key] = e.Object.Raw
	}
}

// all returns the manifests in a stable order.
func (o *objects) all() []json.RawMessage {
	byName := make(map[string]json.RawMessage, len(o.raw))
	for key, raw := range o.raw {
		byName[key.String()+" "+key.Group] = raw
	}
	var out []json.RawMessage
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out
}

// need reads the passwords that a plan needs, and reports whether they have changed. One that cannot be read now stays.
func (o *objects) need(ctx context.Context, keys []model.SecretKey) bool {
	kind := store.Kind{Version: "v1", Kind: "Secret", Resource: "secrets", Namespaced: true}
	now := map[string]string{}
	for _, k := range keys {
		name := k.Name + "/" + k.Key
		object, err := o.cfg.Objects.Get(ctx, kind, kind.Key(o.cfg.SecretNamespace, k.Name))
		var in struct {
			Data       map[string][]byte `json:"data"`
			StringData map[string]string `json:"stringData"`
		}
		if err == nil {
			err = json.Unmarshal(object.Raw, &in)
		}
		old, had := o.passwords[name]
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			o.cfg.Log.Warn("password could not be read", "secret", o.cfg.SecretNamespace+"/"+k.Name, "err", err)
			if had {
				now[name] = old
			}
		case in.StringData[k.Key] != "":
			now[name] = in.StringData[k.Key]
		case len(in.Data[k.Key]) > 0:
			now[name] = string(in.Data[k.Key])
		}
	}
	same := maps.Equal(now, o.passwords)
	o.passwords = now
	return !same
}
