package tokenizer
import "testing"
func BenchmarkUnknown(b *testing.B){
 text:=goSource(b,1_000_000)
 for _,p:=range []string{"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", patternDeepSeek}{
 re,_:=compilePattern(p); s:=regexpSplitter(re)
 b.Run("",func(b *testing.B){ b.SetBytes(1e6); for b.Loop(){ s(text,func(string){})}})
 }
}
