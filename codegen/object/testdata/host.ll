; What a host kernel looks like: exported functions, two of which call libraries.
target triple = "x86_64-unknown-linux-gnu"
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare float @expf(float)
define void @scale(ptr %out, ptr %in, i64 %n) {
entry:
  %has = icmp ne i64 %n, 0
  br i1 %has, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %in, i64 %i
  %x = load float, ptr %p
  %e = call float @expf(float %x)
  %q = getelementptr float, ptr %out, i64 %i
  store float %e, ptr %q
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @copy(ptr %out, ptr %in, i64 %n) {
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %in, i64 %n, i1 false)
  ret void
}
define internal i32 @hidden_helper(i32 %x) noinline {
  ret i32 %x
}
