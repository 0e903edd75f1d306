package main

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
)

// merchants are the merchants who may charge and refund, by a digest of their tokens. Because the
// map has digests, the time of a look-up reveals nothing about a token. A real service has its
// merchants in a database.
var merchants = map[[sha256.Size]byte]string{
	sha256.Sum256([]byte("ann-token")): "ann",
	sha256.Sum256([]byte("bob-token")): "bob",
}

// tokens returns the tokens of the merchants, for readers who want to send requests.
func tokens() []string {
	var all []string
	for _, name := range merchants {
		all = append(all, name+"-token")
	}
	slices.Sort(all)
	return all
}

type merchantKey struct{}

// authenticated finds the merchant who sent a request, or else answers 401.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		merchant, known := merchants[sha256.Sum256([]byte(token))]
		if !strings.EqualFold(scheme, "Bearer") || !known {
			w.Header().Set("WWW-Authenticate", "Bearer")
			reply(w, errNobody.Status, "application/problem+json", errNobody)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), merchantKey{}, merchant)))
	})
}

// merchantOf returns the merchant who sent a request. The guard treats equal keys of different
// merchants as different keys.
func merchantOf(r *http.Request) (string, error) {
	merchant, ok := r.Context().Value(merchantKey{}).(string)
	if !ok {
		return "", errNobody
	}
	return merchant, nil
}
